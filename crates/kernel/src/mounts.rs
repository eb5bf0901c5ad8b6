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

/// The usual mount point of the BPF file system.
const BPFFS: &str = "/sys/fs/bpf";

/// The source of Lull's mounts. Other mounts have the name of the file system there, or "none".
const SOURCE: &str = "lull";

/// How often it is mounted again if other processes unmount it.
const ATTEMPTS: usize = 5;

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

/// The mounts of a type that are visible to a process, `self` or an id.
pub(crate) fn of_kind(process: &str, kind: &str) -> Vec<Mount> {
    let text = fs::read(format!("/proc/{process}/mountinfo")).unwrap_or_default();
    let mut mounts = parse(&text);
    mounts.retain(|mount| mount.kind == kind);
    mounts
}

/// The mounts of file systems whose data is sent to the network by the kernel or by another process than the
/// writing one.
pub(crate) fn networks() -> Vec<Mount> {
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
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
        let root = match &elder {
            Some(pid) => PathBuf::from(format!("/proc/{pid}/root")),
            None => PathBuf::from("/"),
        };
        let mut mounts = of_kind(elder.as_deref().unwrap_or("self"), "bpf");
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
        // Another `lull` may unmount an empty one before this process has it open.
        for _ in 0..ATTEMPTS {
            if let Some(found) = Self::find()? {
                return Ok(found);
            }
            in_oldest_namespace(mount_bpffs).map_err(|source| Error::NoBpffs { source })?;
        }
        Self::find()?.ok_or_else(|| Error::NoBpffs { source: io::ErrorKind::NotFound.into() })
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

/// The oldest ancestor whose mounts we may read, if they are not ours.
fn oldest_ancestor() -> Option<String> {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let mut ancestors = vec!["self".to_owned()];
    while let Some(parent) = parent(&ancestors[ancestors.len() - 1]) {
        ancestors.push(parent.to_string());
    }
    ancestors.push("1".to_owned());
    let elder = ancestors.into_iter().rev().find(|pid| namespace(pid).is_some())?;
    (namespace(&elder) != namespace("self")).then_some(elder)
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
    use super::*;

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
