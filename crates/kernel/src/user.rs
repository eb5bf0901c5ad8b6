//! The user of a program, when `lull` itself runs as root.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use nix::unistd::{self, Gid, Uid};

use crate::error::{Error, Result};
use crate::process::parent;

/// A user with the groups of a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
    name: String,
    /// Home directory and shell. None for an id without an entry in the user database.
    entry: Option<(PathBuf, PathBuf)>,
    /// The environment that this user had before sudo changed it.
    environment: Option<Vec<(OsString, OsString)>>,
}

impl User {
    /// The user with a name or an id.
    ///
    /// # Errors
    /// [`Error::NoUser`], or the error of the user database.
    pub fn named(text: &str) -> Result<Self> {
        let by_name = unistd::User::from_name(text).map_err(Error::errno("read the users"))?;
        let entry = match (by_name, text.parse::<u32>()) {
            (None, Ok(number)) => unistd::User::from_uid(Uid::from_raw(number))
                .map_err(Error::errno("read the users"))?,
            (by_name, _) => by_name,
        };
        let entry = entry.ok_or_else(|| Error::NoUser { user: text.to_owned() })?;
        let (uid, gid) = (entry.uid, entry.gid);
        let sudo_user = Sudo::read().filter(|sudo| sudo.uid == uid);
        let environment = sudo_user.and_then(|_| environment_before_sudo());
        Self::with_entry(uid, gid, entry.name.clone(), Some(entry), environment)
    }

    /// The user who called `sudo lull`; None if sudo did not start this process, or root called it.
    ///
    /// In a root shell or a script that sudo started, the user is root and stays root.
    ///
    /// # Errors
    /// The error of the user database.
    pub fn sudo_caller() -> Result<Option<Self>> {
        let Some(sudo) = Sudo::read().filter(|sudo| !sudo.uid.is_root() && sudo.is_own_command())
        else {
            return Ok(None);
        };
        if !Uid::effective().is_root() {
            return Ok(None);
        }
        let entry = unistd::User::from_uid(sudo.uid).map_err(Error::errno("read the users"))?;
        let name = entry.as_ref().map_or(sudo.name, |entry| entry.name.clone());
        Self::with_entry(sudo.uid, sudo.gid, name, entry, environment_before_sudo()).map(Some)
    }

    fn with_entry(
        uid: Uid,
        gid: Gid,
        name: String,
        entry: Option<unistd::User>,
        environment: Option<Vec<(OsString, OsString)>>,
    ) -> Result<Self> {
        let groups = match (&entry, CString::new(name.as_bytes())) {
            (Some(_), Ok(name)) => unistd::getgrouplist(&name, gid)
                .map_err(Error::errno("read the groups of the user"))?,
            _ => vec![gid],
        };
        let entry = entry.map(|entry| (entry.dir, entry.shell));
        Ok(User { uid, gid, groups, name, entry, environment })
    }

    /// The name, or the id if it has none.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether this process runs as that user.
    pub(crate) fn is_current(&self) -> bool {
        self.uid == Uid::effective()
    }

    /// The environment of a program of this user, which replaces the given one.
    pub(crate) fn environment(&self, ours: Vec<(OsString, OsString)>) -> Vec<(OsString, OsString)> {
        if self.is_current() {
            return ours;
        }
        match &self.environment {
            Some(theirs) => before_sudo(ours, theirs.clone()),
            None => {
                let (home, shell) = self.entry.clone().unzip();
                let name = OsString::from(&self.name);
                in_name_of(ours, &name, home.map(Into::into), shell.map(Into::into))
            }
        }
    }

    /// Replaces the rights of the current user by those of this one. Allocates nothing, for it is called
    /// between fork and exec.
    pub(crate) fn switch_user(&self) -> nix::Result<()> {
        if self.is_current() {
            return Ok(());
        }
        unistd::setgroups(&self.groups)?;
        unistd::setresgid(self.gid, self.gid, self.gid)?;
        unistd::setresuid(self.uid, self.uid, self.uid)
    }
}

/// The variables that sudo(8) sets for the command that it starts.
struct Sudo {
    uid: Uid,
    gid: Gid,
    name: String,
    command: OsString,
}

impl Sudo {
    fn read() -> Option<Self> {
        let number = |name| env::var(name).ok()?.parse::<u32>().ok();
        Some(Sudo {
            uid: Uid::from_raw(number("SUDO_UID")?),
            gid: Gid::from_raw(number("SUDO_GID")?),
            name: env::var("SUDO_USER").ok()?,
            command: env::var_os("SUDO_COMMAND")?,
        })
    }

    /// Whether the command that sudo started is this program: a shell or a script passes the variables of
    /// sudo on to its children.
    fn is_own_command(&self) -> bool {
        let is_us = |path: &Path| {
            let ours = env::current_exe().and_then(fs::canonicalize);
            ours.is_ok_and(|ours| fs::canonicalize(path).is_ok_and(|path| path == ours))
        };
        program_of(&self.command).is_some_and(|path| is_us(&path))
    }
}

/// The program in `SUDO_COMMAND`, which is followed by its arguments: for Lull, the first is `exec`.
fn program_of(command: &OsString) -> Option<PathBuf> {
    let bytes = command.clone().into_vec();
    let at = bytes.windows(6).position(|window| window == b" exec ")?;
    Some(OsString::from_vec(bytes[..at].to_vec()).into())
}

/// Whether an ordinary user started this process by sudo.
pub fn is_called_by_sudo() -> bool {
    Sudo::read().is_some_and(|sudo| !sudo.uid.is_root()) && parent_sudo().is_some()
}

/// The parent of this process, if it is sudo or sudo-rs.
fn parent_sudo() -> Option<i32> {
    let parent = parent("self")?;
    let program = fs::read_link(format!("/proc/{parent}/exe")).ok()?;
    program.file_name()?.to_str()?.starts_with("sudo").then_some(parent)
}

/// The environment that sudo was called with, if sudo is the parent of this process.
fn environment_before_sudo() -> Option<Vec<(OsString, OsString)>> {
    let bytes = fs::read(format!("/proc/{}/environ", parent_sudo()?)).ok()?;
    Some(variables_in(&bytes))
}

fn variables_in(environ: &[u8]) -> Vec<(OsString, OsString)> {
    environ
        .split(|&byte| byte == 0)
        .filter_map(|entry| {
            let at = entry.iter().position(|&byte| byte == b'=')?;
            let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
            Some((text(&entry[..at]), text(&entry[at + 1..])))
        })
        .collect()
}

/// The variables that sudo sets by itself (sudoers(5), "Command environment").
fn is_set_by_sudo(name: &OsString) -> bool {
    const NAMES: [&str; 7] = ["HOME", "LOGNAME", "MAIL", "PATH", "SHELL", "USER", "USERNAME"];
    NAMES.iter().any(|set| name == set) || name.as_encoded_bytes().starts_with(b"SUDO_")
}

/// The environment before sudo, with the variables given on its command line (`sudo NAME=value lull`).
fn before_sudo(
    ours: Vec<(OsString, OsString)>,
    mut theirs: Vec<(OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    for (name, value) in ours.into_iter().filter(|(name, _)| !is_set_by_sudo(name)) {
        match theirs.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => theirs.push((name, value)),
        }
    }
    theirs
}

/// An environment in which the variables with a user's name are for another user.
fn in_name_of(
    mut ours: Vec<(OsString, OsString)>,
    name: &OsString,
    home: Option<OsString>,
    shell: Option<OsString>,
) -> Vec<(OsString, OsString)> {
    ours.retain(|(variable, _)| variable != "MAIL" && variable != "USERNAME");
    let mut set = |variable: &str, value: Option<OsString>| {
        ours.retain(|(known, _)| known != variable);
        ours.extend(value.map(|value| (variable.into(), value)));
    };
    set("USER", Some(name.clone()));
    set("LOGNAME", Some(name.clone()));
    set("HOME", home);
    set("SHELL", shell);
    ours
}

/// Checks that this process may run a program as another user.
///
/// # Errors
/// [`Error::Permission`].
pub(crate) fn check(user: Option<&User>) -> Result<()> {
    match user {
        Some(user) if !user.is_current() && !Uid::effective().is_root() => {
            let source = io::Error::from_raw_os_error(libc::EPERM);
            Err(Error::CannotBecome { user: user.name.clone(), source })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        pairs.iter().map(|&(name, value)| (name.into(), value.into())).collect()
    }

    #[test]
    fn environment_before_sudo_keeps_command_line_variables() {
        let theirs = [("HOME", "/users/a"), ("KEY", "1"), ("PATH", "/users/a/bin"), ("LANG", "C")];
        let ours = [
            ("HOME", "/root"),
            ("PATH", "/sbin"),
            ("SUDO_UID", "1000"),
            ("LANG", "de"),
            ("NEW", "2"),
        ];
        let expected = [
            ("HOME", "/users/a"),
            ("KEY", "1"),
            ("PATH", "/users/a/bin"),
            ("LANG", "de"),
            ("NEW", "2"),
        ];
        assert_eq!(before_sudo(variables(&ours), variables(&theirs)), variables(&expected));
    }

    #[test]
    fn environment_names_the_user_of_the_program() {
        let ours =
            variables(&[("A", "1"), ("HOME", "/root"), ("MAIL", "/m/root"), ("USER", "root")]);
        let (home, shell) = (Some("/users/b".into()), Some("/bin/sh".into()));
        let expected = [
            ("A", "1"),
            ("USER", "b"),
            ("LOGNAME", "b"),
            ("HOME", "/users/b"),
            ("SHELL", "/bin/sh"),
        ];
        assert_eq!(in_name_of(ours, &"b".into(), home, shell), variables(&expected));
    }

    #[test]
    fn program_is_read_from_the_command_of_sudo() {
        let program = |text: &str| program_of(&text.into());
        assert_eq!(program("/usr/bin/lull exec -- true"), Some("/usr/bin/lull".into()));
        assert_eq!(program("/a b/lull exec exec true"), Some("/a b/lull".into()));
        assert_eq!(program("/bin/bash"), None);
    }

    #[test]
    fn variables_are_read_from_environ() {
        let read = variables_in(b"A=1\0B=x=y\0broken\0C=\0");
        assert_eq!(read, variables(&[("A", "1"), ("B", "x=y"), ("C", "")]));
    }

    #[test]
    fn user_is_found_by_name_and_number() {
        let root = User::named("root").unwrap();
        assert_eq!((root.uid, root.name()), (Uid::from_raw(0), "root"));
        assert_eq!(User::named("0").unwrap(), root);
        let error = User::named("no-such-user").unwrap_err().to_string();
        assert!(error.starts_with("there is no user 'no-such-user'"), "{error}");
    }
}
