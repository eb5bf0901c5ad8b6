//! Cgroups of others whose processes are in the background: a slice of systemd, or the parent of containers.

use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use libbpf_rs::ProgramAttachType;
use libbpf_rs::query::ProgInfoIter;

use crate::background::{Background, Choice};
use crate::cgroup::Hierarchy;
use crate::error::{Error, Result};
use crate::load::load;
use crate::machine;
use crate::mounts::Bpffs;
use crate::slice_mark::mark;
use crate::state::State;
use crate::sys;

/// The result of [`prepare_slice`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// Processes of the cgroup, and of those inside it, open background connections from now on.
    Now,
    /// They did before.
    Before,
}

/// Puts a cgroup into the background for as long as it exists, and makes it if it is missing. Connections that its
/// processes open or accept from now on are background ones, in cgroups inside it as well. `cgroup` is called as in
/// `/proc/PID/cgroup`.
///
/// The congestion control of `choice` stays loaded until it is unloaded.
///
/// # Errors
/// If the congestion control cannot be loaded, or a program cannot be attached.
pub fn prepare_slice(cgroup: &Path, choice: &Choice) -> Result<Prepared> {
    machine::check_privilege("putting a cgroup into the background")?;
    choice.check_words()?;
    machine::check_btf()?;
    let hierarchy = Hierarchy::open()?;
    let what = || format!("use the cgroup {}", cgroup.display());
    let is_named = cgroup.is_absolute() && cgroup.parent().is_some();
    if !is_named || cgroup.components().any(|part| part.as_os_str() == "..") {
        let source = std::io::Error::other("write its path below the mount, such as /lull.slice");
        return Err(Error::io(what())(source));
    }
    let path = hierarchy.path_of(cgroup);
    fs::create_dir_all(&path).map_err(Error::io(what()))?;
    if has_hooks(&path)? {
        return Ok(Prepared::Before);
    }
    if let Some(parameters) = choice.automatic
        && let Err(error) = load(&choice.congestion, parameters)
        // In use by 'lull exec': it stays loaded as long as the slice exists.
        && !matches!(error, Error::AlreadyLoaded { .. })
    {
        return Err(error);
    }
    machine::check_congestion(&choice.congestion)?;
    let bpffs = Bpffs::find().ok().flatten();
    let state = bpffs.as_ref().map_or(Ok(None), State::open_existing)?;
    let mut storage = MaybeUninit::uninit();
    let open =
        || hierarchy.existing(cgroup).map(|cgroup| (cgroup, None)).map_err(Error::io(what()));
    let (attached, ..) = Background::attach(choice, &mut storage, open, state.as_ref())?;
    mark(attached.directory(), &choice.congestion)?;
    Ok(Prepared::Now)
}

/// Whether processes in a cgroup are in the background already, by it or by one around it.
fn has_hooks(path: &PathBuf) -> Result<bool> {
    let directory = fs::File::open(path).map_err(Error::io("open the cgroup"))?;
    let kind = ProgramAttachType::CgroupInetEgress as u32;
    let attached =
        sys::effective_programs(directory.as_fd(), kind).map_err(Error::outer_program)?;
    Ok(ProgInfoIter::default()
        .any(|program| program.name == "lull_egress" && attached.contains(&program.id)))
}
