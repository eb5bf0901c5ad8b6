//! Modules of a crate do not import each other in a circle.
//!
//! The rule applies to siblings, at every level of a crate: if anything in the module `a` or below it names
//! something in its sibling `b` or below, `a` imports `b`. A module and its own submodules may import each
//! other. A re-exported name counts as from the module that declares it. Tests do not count.

use std::collections::{BTreeMap, BTreeSet};

use crate::rust::{Scope, Source};
use crate::{Finding, Tree, manifest, ratchet};

/// How many `pub use` one name may go through.
const HOPS: usize = 16;

/// A module by its path from the root of its crate.
type Path = Vec<String>;
/// Each sibling that a module imports, and where.
type Imports = BTreeMap<String, BTreeMap<String, (String, usize)>>;

/// A file and the data that the rule needs of it.
struct Module {
    file: String,
    scope: Scope,
    paths: Vec<(String, usize)>,
}

/// The modules of one library or program.
#[derive(Default)]
struct Modules(BTreeMap<Path, Module>);

/// Modules in circles, except those of the list of exceptions, and exceptions for modules that are in none.
pub(crate) fn circles(tree: &Tree) -> Vec<Finding> {
    let allowed = ratchet::list(tree, "modules_in_circles");
    let mut findings = Vec::new();
    let mut used = BTreeSet::new();
    for one in manifest::crates(tree) {
        for (name, modules) in read(tree, &one.name) {
            for (parent, imports) in modules.imports() {
                let full = |module: &str| format!("{name}::{}", join(&parent, module));
                for circle in components(&imports) {
                    let (old, new): (Vec<_>, Vec<_>) =
                        circle.iter().map(|module| full(module)).partition(|m| allowed.contains(m));
                    used.extend(old);
                    if !new.is_empty() {
                        findings.push(finding(&imports, &circle, &new));
                    }
                }
            }
        }
    }
    let unused = allowed.into_iter().filter(|name| !used.contains(name));
    findings.extend(unused.map(|name| ratchet::unused("modules_in_circles", &name)));
    findings
}

fn join(parent: &[String], module: &str) -> String {
    let mut parts: Vec<_> = parent.iter().map(String::as_str).collect();
    parts.push(module);
    parts.join("::")
}

/// Reports a circle at the first import in it.
fn finding(imports: &Imports, circle: &BTreeSet<String>, new: &[String]) -> Finding {
    let mut edges = Vec::new();
    let mut place = None;
    for from in circle {
        for (to, (file, line)) in imports.get(from).into_iter().flatten() {
            if circle.contains(to) {
                edges.push(format!("{from} → {to} ({file}:{line})"));
                place.get_or_insert((file.clone(), *line));
            }
        }
    }
    let (file, line) = place.unwrap_or_default();
    let what =
        format!("a circle of modules, with {} new in it: {}", new.join(", "), edges.join(", "));
    Finding::at(file, line, what)
}

/// The libraries and programs of the crate in `crates/name/`, each with its name.
fn read(tree: &Tree, name: &str) -> Vec<(String, Modules)> {
    let mut found: BTreeMap<String, Modules> = BTreeMap::new();
    let src = format!("crates/{name}/src/");
    for (path, text) in tree.under(&src, ".rs") {
        let Some(mut parts) = parts(&path[src.len()..]) else {
            continue;
        };
        let mut root = name.to_owned();
        if parts.first().is_some_and(|part| part == "bin") && parts.len() > 1 {
            root = format!("{name}/{}", parts[1]);
            parts.drain(..2);
        }
        let Some(source) = Source::parse(text) else {
            continue;
        };
        let source = source.without_tests();
        let module = Module { file: path.to_owned(), scope: source.scope(), paths: source.paths() };
        found.entry(root).or_default().0.insert(parts, module);
    }
    found.into_iter().collect()
}

/// The path of the module in a file, or `None` for tests and for a `main.rs` beside a library.
fn parts(file: &str) -> Option<Path> {
    if file == "main.rs" {
        return None;
    }
    let mut parts: Path =
        file.strip_suffix(".rs").unwrap_or(file).split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| ["lib", "main", "mod"].contains(&last.as_str())) {
        parts.pop();
    }
    (!parts.iter().any(|part| part == "tests")).then_some(parts)
}

impl Modules {
    /// The imports between siblings, by the parent of both.
    fn imports(&self) -> BTreeMap<Path, Imports> {
        let mut found: BTreeMap<Path, Imports> = BTreeMap::new();
        for (from, module) in &self.0 {
            for (path, line) in &module.paths {
                let Some(to) = self.resolve(from, path, HOPS) else {
                    continue;
                };
                let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
                if let (Some(a), Some(b)) = (from.get(common), to.get(common)) {
                    let imports = found.entry(to[..common].to_vec()).or_default();
                    let place = (module.file.clone(), *line);
                    imports.entry(a.clone()).or_default().entry(b.clone()).or_insert(place);
                }
            }
        }
        found
    }

    /// The module that declares the meaning of `path` in `module`, or `None` if it belongs to another crate.
    fn resolve(&self, module: &Path, path: &str, hops: usize) -> Option<Path> {
        let hops = hops.checked_sub(1)?;
        let mut here = module.clone();
        let mut parts = path.split("::").peekable();
        let mut is_inside = false;
        while let Some(part @ ("crate" | "self" | "super")) = parts.peek().copied() {
            match part {
                "crate" => here.clear(),
                "super" => {
                    here.pop()?;
                }
                _ => {}
            }
            is_inside = true;
            parts.next();
        }
        while let Some(part) = parts.next() {
            here.push(part.to_owned());
            if self.0.contains_key(&here) {
                is_inside = true;
                continue;
            }
            here.pop();
            let scope = &self.0.get(&here)?.scope;
            if scope.items.iter().any(|item| item == part) {
                return Some(here);
            }
            let rest: Vec<&str> = parts.collect();
            if let Some((_, stands_for)) = scope.names.iter().find(|(name, _)| name == part) {
                let path = [&[stands_for.as_str()], &rest[..]].concat().join("::");
                return self.resolve(&here, &path, hops);
            }
            // A variable may have the name of a module.
            let is_type = part.starts_with(char::is_uppercase) || !rest.is_empty();
            let globbed = is_type.then(|| self.globbed(&here, part, hops)).flatten();
            return globbed.or(is_inside.then_some(here));
        }
        is_inside.then_some(here)
    }

    /// The module behind a glob import of `module` that declares `name`.
    fn globbed(&self, module: &Path, name: &str, hops: usize) -> Option<Path> {
        let globs = &self.0.get(module)?.scope.globs;
        globs.iter().find_map(|glob| {
            let from = self.resolve(module, glob, hops)?;
            let scope = &self.0.get(&from)?.scope;
            if scope.items.iter().any(|item| item == name) {
                return Some(from);
            }
            let (_, path) = scope.names.iter().find(|(other, _)| other == name)?;
            self.resolve(&from, path, hops)
        })
    }
}

/// The groups of modules in which each imports each, possibly indirectly.
fn components(imports: &Imports) -> Vec<BTreeSet<String>> {
    let reach: BTreeMap<&String, BTreeSet<&String>> =
        imports.keys().map(|from| (from, reachable(imports, from))).collect();
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for (from, to) in &reach {
        if to.contains(from) && !found.iter().any(|circle| circle.contains(*from)) {
            let both =
                |other: &&&String| reach.get(**other).is_some_and(|back| back.contains(from));
            found.push(to.iter().filter(both).map(|other| (*other).clone()).collect());
        }
    }
    found
}

/// The modules that `from` imports, and their imports.
fn reachable<'a>(imports: &'a Imports, from: &'a String) -> BTreeSet<&'a String> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        for to in imports.get(module).into_iter().flat_map(BTreeMap::keys) {
            if found.insert(to) {
                open.push(to);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::made_up;

    fn found(files: &[(&str, &str)], exceptions: &str) -> Vec<Finding> {
        let ratchet = format!("modules_in_circles = [{exceptions}]\n");
        let files: Vec<_> =
            files.iter().map(|(path, text)| (format!("crates/lab/src/{path}"), *text)).collect();
        let mut all: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        all.push(("crates/lab/Cargo.toml", "[package]\nname = 'lull-lab'\n"));
        all.push((ratchet::PATH, &ratchet));
        circles(&made_up(&all))
    }

    const A_AND_B: &str = "mod a; mod b;";

    #[test]
    fn imports_of_siblings_in_a_circle_are_found() {
        let findings = found(
            &[
                ("lib.rs", A_AND_B),
                ("a.rs", "use crate::b::B; pub struct A;"),
                ("b/mod.rs", "mod c; pub struct B;"),
                ("b/c.rs", "\nfn f(_: super::super::a::A) {}"),
            ],
            "",
        );
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].what.contains("a → b (crates/lab/src/a.rs:1)"), "{}", findings[0]);
        assert!(findings[0].what.contains("b → a (crates/lab/src/b/c.rs:2)"), "{}", findings[0]);
    }

    #[test]
    fn name_exported_again_is_of_the_module_that_declares_it() {
        for export in ["pub use b::B as C;", "pub use b::*; pub use B as C;"] {
            let lib = format!("{A_AND_B} {export}");
            let files = [
                ("lib.rs", lib.as_str()),
                ("a.rs", "use crate::C; pub struct A;"),
                ("b.rs", "use super::a::A; pub struct B;"),
            ];
            assert_eq!(found(&files, "").len(), 1, "{export}");
        }
        let globbed = [
            ("lib.rs", "mod a; mod b; use a::A;"),
            ("a.rs", "use crate::b; pub struct A;"),
            ("b.rs", "use super::*; fn f(_: A) {}"),
        ];
        assert_eq!(found(&globbed, "").len(), 1);
    }

    #[test]
    fn arrows_parents_other_crates_and_tests_are_no_circle() {
        for b in [
            "pub struct B;",
            "pub struct B; #[cfg(test)] mod tests { use crate::a::A; }",
            "use a::A; pub struct B;",
            "use super::Root; pub struct B;",
            "pub struct B; // crate::a::A",
        ] {
            let files = [
                ("lib.rs", "mod a; mod b; pub struct Root;"),
                ("a.rs", "use crate::b::B; pub struct A;"),
                ("b.rs", b),
            ];
            assert_eq!(found(&files, ""), [], "{b}");
        }
        let parent = [
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod c; use c::C; pub struct A;"),
            ("a/c.rs", "use super::A; pub struct C;"),
        ];
        assert_eq!(found(&parent, ""), []);
    }

    #[test]
    fn exception_holds_while_module_is_in_a_circle() {
        let circle = [
            ("lib.rs", A_AND_B),
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "use crate::a::A; pub struct B;"),
        ];
        assert_eq!(found(&circle, "'lab::a', 'lab::b'"), []);
        assert_eq!(found(&circle, "'lab::a'").len(), 1);
        let straight =
            [("lib.rs", A_AND_B), ("a.rs", "use crate::b::B;"), ("b.rs", "pub struct B;")];
        let findings = found(&straight, "'lab::a', 'lab::b'");
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings.iter().all(|finding| finding.path == ratchet::PATH));
    }
}
