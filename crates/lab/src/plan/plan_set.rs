//! Finding plans.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Plan, PlanError};

/// The plans of the source tree of this program: names and texts, by name.
const BUILT_IN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/plans.rs"));

/// A set of plans.
#[derive(Clone, Debug)]
pub struct PlanSet {
    /// Names and places of their texts.
    plans: Vec<(String, PlanSource)>,
}

#[derive(Clone, Debug)]
enum PlanSource {
    File(PathBuf),
    BuiltIn(&'static str),
}

impl PlanSet {
    /// The plans in `folder`. Without it, those in `./plans`, and without that folder the built-in plans.
    ///
    /// # Errors
    /// [`PlanError::Folder`] if a folder cannot be read.
    pub fn open(folder: Option<&Path>) -> Result<Self, PlanError> {
        let usual = Path::new("plans");
        match folder {
            Some(folder) => Self::read(folder),
            None if usual.is_dir() => Self::read(usual),
            None => Ok(Self::built_in()),
        }
    }

    /// The built-in plans.
    pub fn built_in() -> Self {
        let plans =
            BUILT_IN.iter().map(|(name, text)| (name.to_string(), PlanSource::BuiltIn(text)));
        PlanSet { plans: plans.collect() }
    }

    fn read(folder: &Path) -> Result<Self, PlanError> {
        let error = |source| PlanError::Folder { path: folder.to_owned(), source };
        let mut plans = Vec::new();
        for entry in fs::read_dir(folder).map_err(error)? {
            let path = entry.map_err(error)?.path();
            let is_plan = path.extension().is_some_and(|extension| extension == "toml");
            if let (true, Some(stem)) = (is_plan, path.file_stem()) {
                plans.push((stem.to_string_lossy().into_owned(), PlanSource::File(path)));
            }
        }
        plans.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(PlanSet { plans })
    }

    /// The names of all plans, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.plans.iter().map(|(name, _)| name.as_str())
    }

    /// The plans whose names match one of the patterns, in which `*` matches any text.
    ///
    /// # Errors
    /// [`PlanError::Unknown`] for a pattern without a match, and those of [`Plan::parse`].
    pub fn find(&self, patterns: &[String], quick: bool) -> Result<Vec<Plan>, PlanError> {
        let matches = |name: &str, pattern: &str| is_match(name, pattern);
        if let Some(wanted) =
            patterns.iter().find(|pattern| !self.names().any(|name| matches(name, pattern)))
        {
            let known: Vec<&str> = self.names().collect();
            return Err(PlanError::Unknown { wanted: wanted.clone(), known: known.join(", ") });
        }
        let wanted = self
            .plans
            .iter()
            .filter(|(name, _)| patterns.iter().any(|pattern| matches(name, pattern)));
        wanted.map(|(name, place)| place.plan(name, quick)).collect()
    }
}

impl PlanSource {
    fn plan(&self, name: &str, quick: bool) -> Result<Plan, PlanError> {
        let plan = match self {
            PlanSource::File(path) => Plan::read(path, quick)?,
            PlanSource::BuiltIn(text) => {
                Plan::parse_beside(&format!("{name}.toml"), text, quick, |id| {
                    let (name, text) = BUILT_IN.iter().find(|(name, _)| *name == id)?;
                    Some((format!("{name}.toml"), (*text).to_owned()))
                })?
            }
        };
        if plan.id != name {
            let text = format!("id: it is '{}', and must be the file's name, '{name}'", plan.id);
            return Err(plan.error(&["id"], text));
        }
        Ok(plan)
    }
}

/// Whether a name matches a pattern in which `*` matches any text.
fn is_match(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => name == pattern,
        Some((before, after)) => name.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len()).any(|at| rest.is_char_boundary(at) && is_match(&rest[at..], after))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_like_shell_globs() {
        for (name, pattern, expected) in [
            ("kernel-matrix", "kernel-matrix", true),
            ("kernel-matrix", "kernel-*", true),
            ("kernel-matrix", "*", true),
            ("kernel-matrix", "*matrix", true),
            ("kernel-matrix", "k*-*x", true),
            ("kernel-matrix", "kernel", false),
            ("kernel-matrix", "*cpu", false),
            ("demo", "d**o", true),
        ] {
            assert_eq!(is_match(name, pattern), expected, "{name} {pattern}");
        }
    }

    #[test]
    fn built_in_plans_parse_in_full_and_quick() {
        let plan_set = PlanSet::built_in();
        let all = ["*".to_owned()];
        for quick in [false, true] {
            assert!(!plan_set.find(&all, quick).unwrap().is_empty());
        }
        let error = plan_set.find(&["no-such-plan".to_owned()], false).unwrap_err();
        assert!(error.to_string().contains("kernel-matrix"), "{error}");
    }
}
