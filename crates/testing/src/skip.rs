//! Tests that are skipped, because the machine lacks something.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// Reports that `test` was skipped, and why: on stderr, and in the file in `LULL_SKIPPED_FILE`.
///
/// The test itself then returns; [`needs!`](crate::needs) does both.
///
/// # Panics
/// If that file cannot be written: an unreported skip would count as a pass.
pub fn skip(test: &str, why: &str) {
    eprintln!("SKIPPED {test}: {why}");
    if let Some(list) = std::env::var_os("LULL_SKIPPED_FILE") {
        record(Path::new(&list), test, why)
            .unwrap_or_else(|error| panic!("{}: {error}", Path::new(&list).display()));
    }
}

/// Appends one line to `list`, in one write: test binaries and their threads share the file.
fn record(list: &Path, test: &str, why: &str) -> io::Result<()> {
    let line = format!("{test}: {}\n", why.replace('\n', " "));
    OpenOptions::new().create(true).append(true).open(list)?.write_all(line.as_bytes())
}

/// The name of the function that contains a local item of the type name `local`, without its crate.
#[doc(hidden)]
pub fn enclosing(local: &str) -> &str {
    let path = local.rsplit_once("::").map_or(local, |(function, _)| function);
    path.trim_end_matches("::{{closure}}")
}

/// Skips the rest of a test unless each argument, a probe such as [`bpf()`](crate::bpf()), is `Ok`.
///
/// Reports the test by its path and the first missing requirement by its reason, and returns. Usable in every
/// function that returns `()`.
#[macro_export]
macro_rules! needs {
    ($($probe:expr),+ $(,)?) => {
        let found: ::core::result::Result<(), $crate::Missing> =
            ::core::result::Result::Ok(())$(.and_then(|()| $probe))+;
        if let ::core::result::Result::Err(missing) = found {
            fn here() {}
            let name = ::core::any::type_name_of_val(&here);
            $crate::skip($crate::enclosing(name), &missing.to_string());
            return;
        }
    };
}

#[cfg(test)]
mod tests {
    use std::process::{self, Command};
    use std::{env, fs};

    use super::*;
    use crate::command;

    #[test]
    fn skipped_test_is_one_line_of_the_list() {
        let list = env::temp_dir().join(format!("lull-skipped-{}", process::id()));
        record(&list, "kernel::loads", "no BTF").unwrap();
        record(&list, "kernel::exec", "two\nlines").unwrap();
        let text = fs::read_to_string(&list).unwrap();
        fs::remove_file(&list).unwrap();
        assert_eq!(text, "kernel::loads: no BTF\nkernel::exec: two lines\n");
    }

    #[test]
    fn name_is_that_of_the_test() {
        fn here() {}
        let name = core::any::type_name_of_val(&here);
        assert!(enclosing(name).ends_with("tests::name_is_that_of_the_test"), "{name}");
        assert_eq!(enclosing("load::twice::{{closure}}::here"), "load::twice");
    }

    /// The body of the test below, which runs in its own process, with its own list.
    #[test]
    fn missing_requirement_skips_the_test() {
        if env::var_os("LULL_TESTING_INNER").is_none() {
            return;
        }
        needs!(Ok(()), command("lull-no-such-program"));
        panic!("went on without it");
    }

    #[test]
    fn missing_requirement_ends_the_test_and_is_listed() {
        let list = env::temp_dir().join(format!("lull-needs-{}", process::id()));
        let output = Command::new(env::current_exe().unwrap())
            .args(["--exact", "skip::tests::missing_requirement_skips_the_test"])
            .env("LULL_TESTING_INNER", "1")
            .env("LULL_SKIPPED_FILE", &list)
            .output()
            .unwrap();
        let text = fs::read_to_string(&list).unwrap();
        fs::remove_file(&list).unwrap();
        assert!(output.status.success());
        assert!(
            text.contains(
                "missing_requirement_skips_the_test: no lull-no-such-program on the PATH"
            ),
            "{text}"
        );
    }
}
