//! Attributes, as `stat` shows them, and permissions. Pure.

use lull_replication::path::Path;
use lull_replication::time::WallTime;
use lull_replication::types::{Kind, Metadata, Mode, Sequence, Version};
use nfs3_types::nfs3::{
    ACCESS3_EXECUTE, ACCESS3_LOOKUP, ACCESS3_READ, fattr3, ftype3, nfstime3, specdata3,
};

use super::rpc::Caller;
use crate::fuse::number_of;

/// All files belong to root: owners are not replicated.
const OWNER: u32 = 0;
/// The shown size of a folder.
const FOLDER_BYTES: u64 = 4_096;
/// The rights of a class of users, in the bits of a mode.
const READ: u32 = 4;
const EXECUTE: u32 = 1;

/// A time of NFS, which has none before 1970 or after 2106.
fn time(time: WallTime) -> nfstime3 {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(0);
    let seconds = u32::try_from(nanos / 1_000_000_000).unwrap_or(u32::MAX);
    nfstime3 { seconds, nseconds: (nanos % 1_000_000_000) as u32 }
}

fn attributes(type_: ftype3, mode: Mode, size: u64, fileid: u64, times: [nfstime3; 2]) -> fattr3 {
    let [mtime, ctime] = times;
    let nlink = if type_ == ftype3::NF3DIR { 2 } else { 1 };
    let (mode, rdev) = (u32::from(mode.bits()), specdata3::default());
    let (uid, gid, used, fsid, atime) = (OWNER, OWNER, size, 1, mtime);
    fattr3 { type_, mode, nlink, uid, gid, size, used, rdev, fsid, fileid, atime, mtime, ctime }
}

/// The attributes of a version of a file or link.
pub(super) fn of_version(path: &Path, version: &Version) -> fattr3 {
    let Metadata { kind, modified, mode } = version.content.metadata;
    let kind = if kind == Kind::Link { ftype3::NF3LNK } else { ftype3::NF3REG };
    let number = number_of(path.as_bytes(), Some(version.sequence));
    attributes(kind, mode, version.content.size.0, number, [time(modified); 2])
}

/// The attributes of a folder in a state that was made at that time. Clients cache its names until its change time is
/// another one, so that is a different one for each state.
pub(super) fn of_folder(
    path: &[u8],
    told: Option<Metadata>,
    at: Sequence,
    made: Option<WallTime>,
) -> fattr3 {
    let mut changed = time(made.unwrap_or_default());
    changed.nseconds = (at.0 % 1_000_000_000) as u32;
    let modified = told.map_or(changed, |told| time(told.modified));
    let mode = mode_of(told);
    attributes(ftype3::NF3DIR, mode, FOLDER_BYTES, number_of(path, None), [modified, changed])
}

/// The mode of a folder. One that is no object has the mode of a read-only folder.
pub(super) fn mode_of(told: Option<Metadata>) -> Mode {
    told.map_or(Mode::IMPLIED, |told| told.mode)
}

fn rights(mode: Mode, caller: &Caller) -> u32 {
    let mode = u32::from(mode.bits());
    match caller {
        // Root reads everything, and executes files that any user may execute (path_resolution(7)).
        Caller { user: OWNER, .. } => READ | (u32::from(mode & 0o111 != 0) * EXECUTE),
        Caller { groups, .. } if groups.contains(&OWNER) => (mode >> 3) & 7,
        _ => mode & 7,
    }
}

/// Which of the rights of `ACCESS` a caller has.
pub(super) fn access(is_folder: bool, mode: Mode, caller: &Caller) -> u32 {
    let rights = rights(mode, caller);
    let mut access = 0;
    if rights & READ != 0 {
        access |= ACCESS3_READ;
    }
    if rights & EXECUTE != 0 {
        access |= if is_folder { ACCESS3_LOOKUP } else { ACCESS3_EXECUTE };
    }
    // Root looks names up in all folders.
    if is_folder && caller.user == OWNER {
        access |= ACCESS3_LOOKUP;
    }
    access
}

/// Whether a caller may read a file: programs that can be executed can be read, because the server does not know
/// what the client reads for (RFC 1813 §4.4).
pub(super) fn may_read(mode: Mode, caller: &Caller) -> bool {
    rights(mode, caller) & (READ | EXECUTE) != 0
}
