//! The mount points of the kernel's file systems, and possible ones.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::{io, thread};

use nix::mount::MsFlags;
use nix::sched::CloneFlags;
use nix::sys::statfs::{BPF_FS_MAGIC, fstatfs};

use crate::error::{Error, Result};
use crate::process::parent;
use crate::sys;

/// The usual mount point of the BPF file system.
const BPFFS: &str = "/sys/fs/bpf";

/// The folder above it. A process locks it while it mounts or unmounts the BPF file system. Each mount is a new file
/// system, so a second one at the same place would hide the pins in the first.
const MOUNT_LOCK: &str = "sys/fs";

/// This thread in `/proc`. A thread may have mounts of its own, and `self` has those of the first thread.
pub(crate) const THREAD: &str = "thread-self";

/// The source of Lull's mounts. Other mounts have the name of the file system there, or "none".
const SOURCE: &str = "lull";

/// One line of a `mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The directory of the file system that is visible at `point`.
    pub(crate) root: PathBuf,
    pub(crate) point: PathBuf,
    pub(crate) kind: OsString,
    /// The device, or for file systems without one a name that the mounter chose.
    pub(crate) source: OsString,
    /// The kernel's internal number: the major number above 20 bits of the minor one.
    pub(crate) device: u32,
}

/// Reads the lines of a `mountinfo` (proc_pid_mountinfo(5)).
pub(crate) fn parse(mountinfo: &[u8]) -> Vec<Mount> {
    mountinfo.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    // Optional fields are between the sixth and a single hyphen.
    let hyphen = fields.iter().skip(6).position(|&field| field == b"-")? + 6;
    let (major, minor) = std::str::from_utf8(fields.get(2)?).ok()?.split_once(':')?;
    Some(Mount {
        device: major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?,
        root: unescape(fields.get(3)?),
        point: unescape(fields.get(4)?),
        kind: OsString::from_vec(fields.get(hyphen + 1)?.to_vec()),
        source: OsString::from_vec(fields.get(hyphen + 2)?.to_vec()),
    })
}

/// Spaces and the like are encoded as a backslash and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let code = tail
            .get(..3)
            .filter(|_| byte == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                out.push(code);
                rest = &tail[3..];
            }
            None => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsStr::from_bytes(&out))
}

/// The mounts of a type that are visible to a process, [`THREAD`] or an id.
pub(crate) fn of_kind(process: &str, kind: &str) -> Vec<Mount> {
    let text = fs::read(format!("/proc/{process}/mountinfo")).unwrap_or_default();
    let mut mounts = parse(&text);
    mounts.retain(|mount| mount.kind == kind);
    mounts
}

/// The mounts of file systems whose data is sent to the network by the kernel or by another process than the
/// writing one.
pub(crate) fn networks() -> Vec<Mount> {
    let text = fs::read(format!("/proc/{THREAD}/mountinfo")).unwrap_or_default();
    let mut mounts = parse(&text);
    mounts.retain(|mount| mount.kind.to_str().is_some_and(is_network));
    mounts
}

fn is_network(kind: &str) -> bool {
    const KERNEL_FILE_SYSTEMS: [&str; 10] =
        ["9p", "afs", "ceph", "cifs", "gfs2", "lustre", "nfs", "nfs4", "smb3", "smbfs"];
    /// User-space file systems that stay on this machine.
    const LOCAL_FILE_SYSTEMS: [&str; 16] = [
        "appimage",
        "archivemount",
        "bindfs",
        "cryfs",
        "encfs",
        "fuse-overlayfs",
        "gocryptfs",
        "gvfsd-fuse",
        "lxcfs",
        "mergerfs",
        "ntfs-3g",
        "portal",
        "snapfuse",
        "squashfuse",
        "unionfs",
        "veracrypt",
    ];
    match kind.strip_prefix("fuse.") {
        Some(server) => !LOCAL_FILE_SYSTEMS.contains(&server) && !server.ends_with(".AppImage"),
        None => KERNEL_FILE_SYSTEMS.contains(&kind),
    }
}

/// The BPF file system that outlives this process.
///
/// Inside `ip netns exec` a visible one disappears with the command, so the one of the oldest accessible
/// ancestor is preferred.
#[derive(Debug)]
pub(crate) struct Bpffs {
    /// Open until it is dropped.
    root: Option<File>,
    /// Lull has mounted it, and unmounts it when it has no pins.
    is_ours: bool,
}

impl Bpffs {
    /// Finds it if it is mounted.
    ///
    /// # Errors
    /// [`Error::BpffsDenied`] if it is mounted and not accessible to this process.
    pub(crate) fn find() -> Result<Option<Self>> {
        let elder = oldest_ancestor();
        let root = root_of(elder.as_deref());
        let mut mounts = of_kind(elder.as_deref().unwrap_or(THREAD), "bpf");
        mounts.retain(|mount| mount.root == Path::new("/"));
        mounts.sort_by_key(|mount| mount.point != Path::new(BPFFS));
        let mut denied = None;
        for mount in &mounts {
            let Ok(point) = mount.point.strip_prefix("/") else { continue };
            match File::open(root.join(point)) {
                // Another mount may be on top.
                Ok(root) if is_bpffs(&root) => {
                    let is_ours = mount.source == SOURCE && mount.point == Path::new(BPFFS);
                    return Ok(Some(Bpffs { root: Some(root), is_ours }));
                }
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    denied.get_or_insert(&mount.point);
                }
                _ => {}
            }
        }
        match denied {
            Some(point) => Err(Error::BpffsDenied { point: point.clone() }),
            None => Ok(None),
        }
    }

    /// Finds it, and mounts it if necessary.
    pub(crate) fn mount() -> Result<Self> {
        if let Some(found) = Self::find()? {
            return Ok(found);
        }
        let no_bpffs = |source| Error::NoBpffs { source };
        let _lock = lock_mounts().map_err(no_bpffs)?;
        // Another process may have mounted it before this one had the lock.
        if let Some(found) = Self::find()? {
            return Ok(found);
        }
        in_oldest_namespace(mount_bpffs).map_err(no_bpffs)?;
        Self::find()?.ok_or_else(|| no_bpffs(io::ErrorKind::NotFound.into()))
    }

    /// A new one that only this process sees.
    pub(crate) fn private() -> io::Result<Self> {
        Ok(Bpffs { root: Some(File::from(sys::detached_bpffs()?)), is_ours: false })
    }

    /// A path that leads there from any namespace, while this value exists.
    pub(crate) fn path(&self) -> PathBuf {
        let root = self.root.as_ref().expect("it is open until it is dropped");
        PathBuf::from(format!("/proc/self/fd/{}", root.as_raw_fd()))
    }
}

impl Drop for Bpffs {
    fn drop(&mut self) {
        if self.is_ours && is_empty(&self.path()) {
            let _lock = lock_mounts();
            self.root = None;
            // Fails while another `lull` has it open, which does the same afterwards.
            let _ = in_oldest_namespace(|| Ok(nix::mount::umount(BPFFS)?));
        }
    }
}

/// Whether nothing is pinned there.
fn is_empty(root: &Path) -> bool {
    /// A kernel with CONFIG_BPF_PRELOAD pins these itself.
    const PRELOADED: [&str; 2] = ["maps.debug", "progs.debug"];
    let is_preloaded = |name: OsString| PRELOADED.iter().any(|preloaded| name == *preloaded);
    fs::read_dir(root)
        .is_ok_and(|mut pins| pins.all(|pin| pin.is_ok_and(|pin| is_preloaded(pin.file_name()))))
}

fn is_bpffs(root: &File) -> bool {
    fstatfs(root).is_ok_and(|stat| stat.filesystem_type() == BPF_FS_MAGIC)
}

fn lock_mounts() -> io::Result<File> {
    let folder = File::open(root_of(oldest_ancestor().as_deref()).join(MOUNT_LOCK))?;
    folder.lock()?;
    Ok(folder)
}

/// The root folder of a process, by default of this thread.
fn root_of(process: Option<&str>) -> PathBuf {
    match process {
        Some(pid) => PathBuf::from(format!("/proc/{pid}/root")),
        None => PathBuf::from("/"),
    }
}

/// The oldest ancestor whose mounts we may read, if they are not ours.
fn oldest_ancestor() -> Option<String> {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let mut ancestors = vec![THREAD.to_owned()];
    while let Some(parent) = parent(&ancestors[ancestors.len() - 1]) {
        ancestors.push(parent.to_string());
    }
    ancestors.push("1".to_owned());
    let elder = ancestors.into_iter().rev().find(|pid| namespace(pid).is_some())?;
    (namespace(&elder) != namespace(THREAD)).then_some(elder)
}

/// Does something to the mounts of the oldest accessible ancestor.
fn in_oldest_namespace(what: fn() -> io::Result<()>) -> io::Result<()> {
    let Some(elder) = oldest_ancestor() else { return what() };
    // A separate thread, because the whole thread changes its namespace and ends with it.
    thread::spawn(move || -> io::Result<()> {
        let namespace = File::open(format!("/proc/{elder}/ns/mnt"))?;
        nix::sched::unshare(CloneFlags::CLONE_FS)?;
        nix::sched::setns(namespace, CloneFlags::CLONE_NEWNS)?;
        what()
    })
    .join()
    .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
}

/// Mounts it at the place that bpftool and systemd use.
fn mount_bpffs() -> io::Result<()> {
    // As they do. By default the kernel lets all users write to it.
    let mode = Some("mode=0700");
    Ok(nix::mount::mount(Some(SOURCE), BPFFS, Some("bpf"), MsFlags::empty(), mode)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use lull_testing::{bpf, needs};

    use super::*;

    /// A thread with mounts of its own, such as a test in a namespace, once mounted it where nothing looked for it.
    #[test]
    fn bpffs_is_found_by_a_thread_with_its_own_mounts() {
        needs!(bpf());
        thread::spawn(|| {
            nix::sched::unshare(CloneFlags::CLONE_NEWNS).unwrap();
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            nix::mount::mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
            let found = Bpffs::mount().unwrap();
            assert!(is_bpffs(found.root.as_ref().unwrap()));
        })
        .join()
        .unwrap();
    }

    /// Two file systems at one place would hide each other's pins.
    #[test]
    fn bpffs_is_one_file_system_for_processes_that_mount_at_once() {
        needs!(bpf());
        for _ in 0..20 {
            let threads: Vec<_> =
                (0..8).map(|_| thread::spawn(|| Bpffs::mount().unwrap())).collect();
            let found: Vec<Bpffs> = threads.into_iter().map(|one| one.join().unwrap()).collect();
            let device = |one: &Bpffs| one.root.as_ref().unwrap().metadata().unwrap().dev();
            assert!(found.iter().all(|one| device(one) == device(&found[0])));
        }
    }

    #[test]
    fn network_file_systems_are_known_by_type() {
        for kind in ["nfs4", "cifs", "fuse.sshfs", "fuse.rclone"] {
            assert!(is_network(kind), "{kind}");
        }
        for kind in ["ext4", "fuseblk", "fuse.portal", "fuse.lxcfs", "tmpfs"] {
            assert!(!is_network(kind), "{kind}");
        }
    }

    #[test]
    fn mountinfo_is_parsed_with_optional_fields_and_escapes() {
        let text = b"38 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n\
            41 23 8:40 /a\\040b /mnt/with\\040space rw shared:1 master:2 - bpf none rw,mode=700\n\
            broken line\n";
        assert_eq!(
            parse(text),
            [
                Mount {
                    root: "/".into(),
                    point: "/sys/fs/cgroup/unified".into(),
                    kind: "cgroup2".into(),
                    source: "cgroup2".into(),
                    device: 38
                },
                Mount {
                    root: "/a b".into(),
                    point: "/mnt/with space".into(),
                    kind: "bpf".into(),
                    source: "none".into(),
                    device: 8 << 20 | 40
                },
            ]
        );
    }
}
