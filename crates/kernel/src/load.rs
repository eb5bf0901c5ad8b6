//! Registers a congestion control with the kernel, and removes it again.

use std::fs;
use std::mem::MaybeUninit;
use std::thread;
use std::time::Duration;

use crate::cgroup::Hierarchy;
use crate::control::Control;
use crate::error::{Error, Result};
use crate::machine;
use crate::mounts::Bpffs;
use crate::parameters::Parameters;
use crate::signals::Signals;
use crate::sockets::{self, Users};
use crate::state::{PinFolder, Record, State};

/// The result of [`load`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// It was registered.
    New,
    /// `lull exec` had registered it with the same parameters; now it stays when that ends.
    Kept,
}

/// Registers a congestion control under a name until [`unload`], or the next boot.
///
/// A signal that arrives meanwhile takes effect afterwards.
///
/// # Errors
/// If the kernel refuses it; nothing stays loaded then.
pub fn load(name: &str, parameters: Parameters) -> Result<Loaded> {
    machine::check_name(name)?;
    machine::check_privilege("loading a congestion control")?;
    machine::check_kernel()?;
    let bpffs = Bpffs::mount()?;
    let state = State::open(&bpffs)?;
    // An interruption leaves all of it, or nothing. The wait for the lock is over.
    let signals = Signals::block()?;
    let result = load_locked(&state, name, parameters);
    drop(state);
    drop(signals);
    result
}

fn load_locked(state: &State<'_>, name: &str, parameters: Parameters) -> Result<Loaded> {
    let Some(folder) = state.find(name) else {
        register(&state.folder(name), name, Record { parameters, automatic: false })?;
        return Ok(Loaded::New);
    };
    let old = Record::read(&folder.record())?;
    // A new record does not make another version's control ours.
    if old == Some(Record { parameters, automatic: true }) && folder.knows_sockets() {
        Record { parameters, automatic: false }.replace(&folder.record())?;
        return Ok(Loaded::Kept);
    }
    let known = old.filter(|_| folder.knows_sockets());
    let parameters = match known {
        Some(record) if record.automatic => format!("{}, by lull exec", record.parameters),
        Some(record) => record.parameters.to_string(),
        None => "by another version of Lull".to_owned(),
    };
    let remedy = match known {
        // It cannot be unloaded earlier, and then it is unloaded automatically.
        Some(record) if record.automatic => {
            "wait until the programs of lull exec have ended".into()
        }
        _ => format!("unload it with 'lull kernel unload --name {name}'"),
    };
    Err(Error::AlreadyLoaded { name: name.to_owned(), parameters, remedy })
}

/// Registers a congestion control for as long as `lull exec` needs it, unless it is registered.
///
/// If the kernel does not accept [`Algorithm::Lull`], Nice is registered under its name. Returns why it was
/// rejected.
pub(crate) fn load_automatically(
    state: &State<'_>,
    name: &str,
    parameters: Parameters,
) -> Result<Option<String>> {
    if state.find(name).is_some() || machine::has_congestion(name)? {
        return Ok(None);
    }
    machine::check_name(name)?;
    machine::check_kernel()?;
    let folder = state.folder(name);
    let result = register(&folder, name, Record { parameters, automatic: true });
    // A process with another BPF file system, as in a container, may have registered it since the check above.
    if result.is_err() && machine::has_congestion(name)? {
        return Ok(None);
    }
    match result {
        Err(Error::Bpf { what, message }) if parameters.algorithm().shares_paths() => {
            let parameters = Parameters::default();
            register(&folder, name, Record { parameters, automatic: true })?;
            Ok(Some(format!("the kernel did not {what}: {message}")))
        }
        result => result.map(|()| None),
    }
}

/// Unloads congestion controls that `lull exec` loaded and no cgroup needs any more.
///
/// `alive` are the congestion controls in the names of cgroups.
pub(crate) fn unload_unused(state: &State<'_>, alive: &[String]) {
    for name in state.names() {
        let Some(folder) = state.find(&name) else { continue };
        let automatic =
            Record::read(&folder.record()).is_ok_and(|record| record.is_some_and(|r| r.automatic));
        if automatic && !alive.contains(&name) {
            folder.remove();
            wait_until_gone(&name);
        }
    }
}

/// The sockets and programs that [`unload`] left running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unloaded {
    /// Sockets that keep the congestion control until a program closes them.
    pub open: usize,
    /// Sockets that a program has closed; they keep it until the other side has received everything.
    pub closed: usize,
}

/// Unloads a congestion control of Lull from the kernel.
///
/// A signal that arrives meanwhile takes effect afterwards.
///
/// # Errors
/// Unless `force`d, [`Error::InUse`] if sockets or programs run on it, [`Error::UsersOutOfSight`] if some
/// programs are not visible, and any error of that check; [`Error::NotLoaded`]; [`Error::BadName`] for an
/// invalid name.
pub fn unload(name: &str, force: bool) -> Result<Unloaded> {
    machine::check_name(name)?;
    machine::check_privilege("unloading a congestion control")?;
    if !force {
        machine::check_btf()?;
    }
    let missing = |loaded: String| Error::NotLoaded { name: name.to_owned(), loaded };
    let bpffs = Bpffs::find()?.ok_or_else(|| missing("nothing is".to_owned()))?;
    let Some(state) = State::open_existing(&bpffs)? else {
        return Err(missing("nothing is".to_owned()));
    };
    let signals = Signals::block()?;
    let result = unload_locked(&state, name, force);
    drop(state);
    drop(signals);
    result
}

fn unload_locked(state: &State<'_>, name: &str, force: bool) -> Result<Unloaded> {
    let Some(folder) = state.find(name) else {
        let names = state.names();
        let loaded = if names.is_empty() { "nothing is".into() } else { names.join(", ") + " is" };
        return Err(Error::NotLoaded { name: name.to_owned(), loaded });
    };
    // The cgroups are checked first, so that programs that have just ended are not counted.
    let (programs, sees_all) = match Hierarchy::open() {
        Ok(hierarchy) => {
            let programs = hierarchy.reap().iter().filter(|alive| *alive == name).count();
            (Ok(programs), hierarchy.sees_all())
        }
        // Then nothing can have been moved into one.
        Err(Error::NoCgroup) => (Ok(0), true),
        Err(error) => (Err(error), false),
    };
    let or_none = |count: Result<usize>| if force { Ok(count.unwrap_or(0)) } else { count };
    let programs = or_none(programs)?;
    let sockets = match sockets::count(&folder) {
        Err(_) if force => Users::default(),
        other => other?,
    };
    // Closed sockets are no longer written to, and may take minutes to go.
    if !force && (sockets.open > 0 || programs > 0) {
        let users = format!("{}, {}", plural(sockets.open, "socket"), plural(programs, "program"));
        return Err(Error::InUse { name: name.to_owned(), users });
    }
    if !force && !sees_all {
        return Err(Error::UsersOutOfSight { name: name.to_owned() });
    }
    folder.remove();
    wait_until_gone(name);
    Ok(Unloaded { open: sockets.open, closed: sockets.closed })
}

fn plural(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// The kernel drops a link some time after its last pin, on a busy machine seconds later.
fn wait_until_gone(name: &str) {
    for _ in 0..2000 {
        if !machine::is_registered(name) {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn register(folder: &PinFolder, name: &str, record: Record) -> Result<()> {
    if machine::has_congestion(name)? {
        return Err(Error::NameTaken { name: name.to_owned() });
    }
    let result = try_register(folder, name, record);
    if result.is_err() {
        folder.remove();
    }
    result
}

fn try_register(folder: &PinFolder, name: &str, record: Record) -> Result<()> {
    let mut object = MaybeUninit::uninit();
    let parameters = record.parameters;
    let mut control =
        Control::load(&mut object, name, parameters.restricted, &parameters.constants())?;
    fs::create_dir(folder.directory())
        .map_err(Error::io(format!("make 'lull/{name}' in the BPF file system")))?;
    control.pin_sockets(&folder.sockets())?;
    control.pin_paths(&folder.paths(), &folder.weights())?;
    // If the root cgroup takes no program, connections share paths all the same; the status says so.
    if let Ok(Some(mut watch)) = control.watch_foreground(name) {
        let what = "pin a program at the root cgroup";
        watch.sent.pin(folder.foreground()).map_err(Error::bpf(what))?;
        watch.received.pin(folder.foreground_received()).map_err(Error::bpf(what))?;
    }
    record.pin(folder, name)?;
    let mut link = control.register()?;
    link.pin(folder.link()).map_err(Error::bpf("pin the congestion control"))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::net::{TcpListener, TcpStream};

    use lull_testing::{bpf, needs};
    use nix::sys::socket::{setsockopt, sockopt};

    use super::*;
    use crate::constants::PathTable;
    use crate::parameters::Algorithm;

    /// Unloads the control of a test, however that ends.
    struct Loaded(String);

    impl Drop for Loaded {
        fn drop(&mut self) {
            let _ = unload(&self.0, true);
        }
    }

    /// After an upgrade: the older version's control continues to run, with its own state.
    #[test]
    fn entry_of_another_version_is_left_to_its_connections() {
        needs!(bpf());
        let name = format!("lull_v{}", std::process::id());
        let parameters = Parameters::default();
        let bpffs = Bpffs::mount().unwrap();
        let state = State::open(&bpffs).unwrap();
        let loaded = Loaded(name.clone());
        assert_eq!(load_automatically(&state, &name, parameters).unwrap(), None);
        let record = Record { parameters, automatic: true };
        record.replace_by_another_version(&state.folder(&name).record()).unwrap();
        // Before another Lull on this machine may unload what has no connections.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        setsockopt(&stream, sockopt::TcpCongestion, &OsString::from(&name)).unwrap();
        drop(state);

        let refused = load(&name, parameters).unwrap_err();
        assert!(refused.to_string().contains("by another version of Lull"), "{refused}");
        let refused = unload(&name, false).unwrap_err();
        assert!(
            matches!(&refused, Error::InUse { users, .. } if users.starts_with("1 socket,")),
            "{refused}"
        );
        drop(loaded);
        assert!(!machine::has_congestion(&name).unwrap());
    }

    /// No kernel permits a table without entries, so this simulates a kernel that lacks a required feature.
    #[test]
    fn nice_is_loaded_where_the_kernel_refuses_lull() {
        needs!(bpf());
        let name = format!("lull_f{}", std::process::id());
        let table = PathTable { paths: 0, ..PathTable::default() };
        let parameters = Parameters::lull(table, false);
        let bpffs = Bpffs::mount().unwrap();
        let state = State::open(&bpffs).unwrap();
        let _loaded = Loaded(name.clone());
        let why = load_automatically(&state, &name, parameters).unwrap().unwrap();
        assert!(why.starts_with("the kernel did not load"), "{why}");
        assert_eq!(state.find(&name).unwrap().algorithm(), Some(Algorithm::Nice));
        assert!(!state.folder(&name).paths().exists());
        // The next run finds it, and is informed as well (`Background::shortfalls`).
        assert_eq!(load_automatically(&state, &name, parameters).unwrap(), None);
        drop(state);
        assert!(load(&name, parameters).is_err());
    }
}
