//! Environment variables meant for one process, by its number.
//!
//! systemd passes sockets to a process with its id, so that its children do not take them for their own. Here
//! the program has to take them.

use std::ffi::OsString;

/// sd_listen_fds(3) takes the sockets from descriptor 3 on if this is its own id.
const LISTEN_PID: &str = "LISTEN_PID";

/// The same by an identifier that only the kernel gives out. Without it the number is enough.
const LISTEN_PIDFDID: &str = "LISTEN_PIDFDID";

/// Beside that, sd_watchdog_enabled(3), and programs that check whether systemd itself has started them
/// (systemd.exec(5)).
const NUMBERS: [&str; 3] = [LISTEN_PID, "WATCHDOG_PID", "SYSTEMD_EXEC_PID"];

/// A variable with its value; None stands for the program's id.
pub(super) type Variable = (OsString, Option<OsString>);

/// The environment of a program that replaces process `own`, which has these variables.
pub(super) fn in_place_of(own: u32, variables: Vec<(OsString, OsString)>) -> Vec<Variable> {
    let own = own.to_string();
    let is_own = |name: &OsString, value: &OsString| {
        NUMBERS.iter().any(|number| name == number) && value == own.as_str()
    };
    let mut variables: Vec<Variable> = variables
        .into_iter()
        .map(|(name, value)| {
            let value = (!is_own(&name, &value)).then_some(value);
            (name, value)
        })
        .collect();
    if variables.iter().any(|(name, value)| name == LISTEN_PID && value.is_none()) {
        variables.retain(|(name, _)| name != LISTEN_PIDFDID);
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_place_of_12(variables: &[(&str, &str)]) -> Vec<(String, Option<String>)> {
        let variables = variables.iter().map(|&(name, value)| (name.into(), value.into()));
        let text = |text: OsString| text.into_string().unwrap();
        let found = in_place_of(12, variables.collect());
        found.into_iter().map(|(name, value)| (text(name), value.map(text))).collect()
    }

    #[test]
    fn own_environment_reaches_the_program() {
        let variables = [
            ("A", "12"),
            ("LISTEN_PID", "12"),
            ("LISTEN_PIDFDID", "34"),
            ("LISTEN_FDS", "1"),
            ("WATCHDOG_PID", "12"),
            ("SYSTEMD_EXEC_PID", "1"),
        ];
        let expected = [
            ("A", Some("12")),
            ("LISTEN_PID", None),
            ("LISTEN_FDS", Some("1")),
            ("WATCHDOG_PID", None),
            ("SYSTEMD_EXEC_PID", Some("1")),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.map(str::to_owned)));
        assert_eq!(in_place_of_12(&variables), expected);
    }

    #[test]
    fn environment_for_other_processes_is_unchanged() {
        let others = [("LISTEN_PID", "1"), ("LISTEN_PIDFDID", "34"), ("WATCHDOG_PID", "012")];
        let same = others.map(|(name, value)| (name.to_owned(), Some(value.to_owned())));
        assert_eq!(in_place_of_12(&others), same);
        assert_eq!(in_place_of_12(&[]), []);
        let found = in_place_of_12(&[("WATCHDOG_PID", "12"), ("LISTEN_PIDFDID", "34")]);
        assert_eq!(found[1], ("LISTEN_PIDFDID".to_owned(), Some("34".to_owned())));
    }
}
