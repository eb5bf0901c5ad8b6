//! Where the kernel's file systems are mounted, or could be.

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

/// Where everybody mounts the BPF file system.
const BPFFS: &str = "/sys/fs/bpf";

/// One line of a `mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The directory of the file system that is visible at `point`.
    pub(crate) root: PathBuf,
    pub(crate) point: PathBuf,
    pub(crate) kind: OsString,
}

/// Reads the lines of a `mountinfo` (proc_pid_mountinfo(5)).
pub(crate) fn parse(mountinfo: &[u8]) -> Vec<Mount> {
    mountinfo.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    // Optional fields lie between the sixth and a lone hyphen.
    let hyphen = fields.iter().skip(6).position(|&field| field == b"-")? + 6;
    Some(Mount {
        root: unescape(fields.get(3)?),
        point: unescape(fields.get(4)?),
        kind: OsString::from_vec(fields.get(hyphen + 1)?.to_vec()),
    })
}

/// Spaces and the like are written as a backslash and three octal digits.
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

/// The mounts of a kind that a process sees, `self` or a number.
pub(crate) fn of_kind(process: &str, kind: &str) -> Vec<Mount> {
    let text = fs::read(format!("/proc/{process}/mountinfo")).unwrap_or_default();
    let mut mounts = parse(&text);
    mounts.retain(|mount| mount.kind == kind);
    mounts
}

/// The BPF file system that outlives this process.
///
/// Inside `ip netns exec` the one in sight, if any, goes with the command, so that of the oldest
/// ancestor which we may look at comes before ours.
#[derive(Debug)]
pub(crate) struct Bpffs(File);

impl Bpffs {
    /// Finds it if it is mounted.
    pub(crate) fn find() -> Option<Self> {
        let elder = oldest_ancestor();
        let root = match &elder {
            Some(pid) => PathBuf::from(format!("/proc/{pid}/root")),
            None => PathBuf::from("/"),
        };
        let mut mounts = of_kind(elder.as_deref().unwrap_or("self"), "bpf");
        mounts.retain(|mount| mount.root == Path::new("/"));
        mounts.sort_by_key(|mount| mount.point != Path::new(BPFFS));
        mounts
            .iter()
            .filter_map(|mount| mount.point.strip_prefix("/").ok())
            .filter_map(|point| File::open(root.join(point)).ok())
            // Another mount may lie on top.
            .find(|root| fstatfs(root).is_ok_and(|stat| stat.filesystem_type() == BPF_FS_MAGIC))
            .map(Bpffs)
    }

    /// Finds it, and mounts it if need be.
    pub(crate) fn mount() -> Result<Self> {
        if let Some(found) = Self::find() {
            return Ok(found);
        }
        mount_bpffs().map_err(|source| Error::NoBpffs { source })?;
        Self::find().ok_or_else(|| Error::NoBpffs { source: io::ErrorKind::NotFound.into() })
    }

    /// A path that leads there from any namespace, for as long as this lives.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

/// The oldest ancestor whose mounts we may look at, if they are not ours.
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

/// Mounts it where bpftool and systemd do, for the oldest ancestor if we may.
fn mount_bpffs() -> io::Result<()> {
    let Some(elder) = oldest_ancestor() else { return mount_bpffs_here() };
    // A thread of its own, since the whole thread changes its namespace and ends with it.
    thread::spawn(move || -> io::Result<()> {
        let namespace = File::open(format!("/proc/{elder}/ns/mnt"))?;
        nix::sched::unshare(CloneFlags::CLONE_FS)?;
        nix::sched::setns(namespace, CloneFlags::CLONE_NEWNS)?;
        mount_bpffs_here()
    })
    .join()
    .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
}

fn mount_bpffs_here() -> io::Result<()> {
    // As they do. By itself the kernel lets everybody write to it.
    let mode = Some("mode=0700");
    Ok(nix::mount::mount(Some("bpf"), BPFFS, Some("bpf"), MsFlags::empty(), mode)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mountinfo_is_read_with_its_optional_fields_and_escapes() {
        let text = b"38 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n\
            41 23 0:40 /a\\040b /mnt/with\\040space rw shared:1 master:2 - bpf none rw,mode=700\n\
            broken line\n";
        assert_eq!(
            parse(text),
            [
                Mount {
                    root: "/".into(),
                    point: "/sys/fs/cgroup/unified".into(),
                    kind: "cgroup2".into()
                },
                Mount { root: "/a b".into(), point: "/mnt/with space".into(), kind: "bpf".into() },
            ]
        );
    }
}
