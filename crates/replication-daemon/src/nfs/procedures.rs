//! The procedures of NFS (RFC 1813 §3.3).

use std::sync::Arc;

use lull_replication::path::Path;
use lull_replication::replica::Entry;
use lull_replication::types::{Kind, MAX_BODY_BYTES, Mode, Sequence};
use nfs3_types::nfs3::{
    ACCESS3_LOOKUP, ACCESS3_READ, ACCESS3resok, FSF3_HOMOGENEOUS, FSF3_SYMLINK, FSINFO3resok,
    FSSTAT3resok, GETATTR3resok, LOOKUP3resok, PATHCONF3resok, READ3resok, READDIR3resok,
    READDIRPLUS3resok, READLINK3resok, VERSION, cookieverf3, dirlist3, dirlistplus3, entry3,
    entryplus3, nfspath3, nfsstat3, nfstime3, post_op_attr, post_op_fh3,
};
use nfs3_types::xdr_codec::{BoundedList, Opaque, Pack};

use super::attributes::{access, may_read, mode_of};
use super::files::Files;
use super::handles::{MAX_HANDLE_BYTES, Node};
use super::listings::Listing;
use super::rpc::{Call, Caller, Input, Refused, packed};

/// Bytes of a `READ`, at most.
const MAX_READ_BYTES: u32 = 256 * 1024;
/// Bytes of a part of a listing, at most.
const MAX_LISTING_BYTES: u32 = 64 * 1024;
/// Bytes of such a part beside its entries: status, attributes, verifier, and the end.
const AROUND_ENTRIES: usize = 128;
/// The longest name (NAME_MAX), and one that is rejected with a reason.
const NAME_BYTES: usize = 255;
const MAX_NAME_BYTES: usize = 4_096;

/// Entries before the names of a folder: `.` and `..`.
const DOTS: usize = 2;

type Status = nfsstat3;

/// The result of a call, as bytes.
pub(super) async fn answer(files: &Files, call: Call<'_>) -> Result<Vec<u8>, Refused> {
    call.expect_version(VERSION)?;
    let Call { procedure, arguments, ref caller, .. } = call;
    match procedure {
        0 => Ok(Vec::new()),
        1 => result(get_attributes(files, arguments).await, 0),
        3 => result(lookup(files, arguments, caller).await, 1),
        4 => result(access_rights(files, arguments, caller).await, 1),
        5 => result(read_link(files, arguments).await, 1),
        6 => result(read(files, arguments, caller).await, 1),
        16 => result(read_folder(files, arguments, caller).await, 1),
        17 => result(read_folder_plus(files, arguments, caller).await, 1),
        18 => result(file_system_size(files, arguments).await, 1),
        19 => result(file_system_limits(files, arguments).await, 1),
        20 => result(path_limits(files, arguments).await, 1),
        // SETATTR, WRITE, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR and COMMIT; LINK; RENAME. Without the attributes
        // before and after the change.
        2 | 7..=13 | 21 => failed(nfsstat3::NFS3ERR_ROFS, 2),
        15 => failed(nfsstat3::NFS3ERR_ROFS, 3),
        14 => failed(nfsstat3::NFS3ERR_ROFS, 4),
        _ => Err(Refused::NoProcedure),
    }
}

/// Why a procedure has no result.
enum Failed {
    Status(Status),
    Garbage,
}

impl From<Status> for Failed {
    fn from(status: Status) -> Self {
        Failed::Status(status)
    }
}

/// A failure, with this many attributes that are left out.
fn failed(status: Status, attributes: usize) -> Result<Vec<u8>, Refused> {
    let mut bytes = packed(&status)?;
    bytes.resize(bytes.len() + 4 * attributes, 0);
    Ok(bytes)
}

fn result(result: Result<impl Pack, Failed>, attributes: usize) -> Result<Vec<u8>, Refused> {
    match result {
        Ok(value) => Ok([packed(&nfsstat3::NFS3_OK)?, packed(&value)?].concat()),
        Err(Failed::Status(status)) => failed(status, attributes),
        Err(Failed::Garbage) => Err(Refused::Garbage),
    }
}

/// The next argument.
fn next<T>(argument: Option<T>) -> Result<T, Failed> {
    argument.ok_or(Failed::Garbage)
}

fn node(files: &Files, arguments: &mut Input<'_>) -> Result<Node, Failed> {
    let handle = next(arguments.opaque(MAX_HANDLE_BYTES))?;
    Ok(files.resolve(handle)?)
}

/// The attributes of a node in the present state, if they can be read now: no procedure waits for them alone.
fn some(files: &Files, path: Option<&Path>, at: Sequence, entry: &Entry) -> post_op_attr {
    post_op_attr::Some(files.attributes(path, at, entry))
}

async fn get_attributes(files: &Files, mut arguments: Input<'_>) -> Result<GETATTR3resok, Failed> {
    let node = node(files, &mut arguments)?;
    let (at, entry) = files.current(&node).await?;
    Ok(GETATTR3resok { obj_attributes: files.attributes(node.path(), at, &entry) })
}

fn mode_of_entry(entry: &Entry) -> (bool, Mode) {
    match entry {
        Entry::Folder(told) => (true, mode_of(*told)),
        Entry::File(version) => (false, version.content.metadata.mode),
    }
}

fn expect_access(entry: &Entry, right: u32, caller: &Caller) -> Result<(), Failed> {
    let (is_folder, mode) = mode_of_entry(entry);
    if !is_folder {
        return Err(nfsstat3::NFS3ERR_NOTDIR.into());
    }
    if access(is_folder, mode, caller) & right == 0 {
        return Err(nfsstat3::NFS3ERR_ACCES.into());
    }
    Ok(())
}

async fn lookup(
    files: &Files,
    mut arguments: Input<'_>,
    caller: &Caller,
) -> Result<LOOKUP3resok, Failed> {
    let folder = node(files, &mut arguments)?;
    let name = next(arguments.opaque(MAX_NAME_BYTES))?;
    let Node::Folder(own) = &folder else { return Err(nfsstat3::NFS3ERR_NOTDIR.into()) };
    // First, so that a name that is not there is missing in this state or a later one.
    let (folder_at, folder_entry) = files.current(&folder).await?;
    expect_access(&folder_entry, ACCESS3_LOOKUP, caller)?;
    let dir_attributes = some(files, own.as_ref(), folder_at, &folder_entry);
    let target = match name {
        b"." => folder.clone(),
        b".." => Node::Folder(own.as_ref().and_then(Path::parent)),
        name => {
            let path = files.child(&folder, name)?;
            let (at, entry) = files.entry(&path).await?;
            let entry = entry.ok_or(nfsstat3::NFS3ERR_NOENT)?;
            let obj_attributes = some(files, Some(&path), at, &entry);
            let object = files.handle(&Files::node(path, &entry));
            return Ok(LOOKUP3resok { object, obj_attributes, dir_attributes });
        }
    };
    let (at, entry) = files.current(&target).await?;
    let obj_attributes = some(files, target.path(), at, &entry);
    Ok(LOOKUP3resok { object: files.handle(&target), obj_attributes, dir_attributes })
}

async fn access_rights(
    files: &Files,
    mut arguments: Input<'_>,
    caller: &Caller,
) -> Result<ACCESS3resok, Failed> {
    let node = node(files, &mut arguments)?;
    let asked = next(arguments.u32())?;
    let (at, entry) = files.current(&node).await?;
    let (is_folder, mode) = mode_of_entry(&entry);
    let access = asked & access(is_folder, mode, caller);
    Ok(ACCESS3resok { obj_attributes: some(files, node.path(), at, &entry), access })
}

async fn read_link(
    files: &Files,
    mut arguments: Input<'_>,
) -> Result<READLINK3resok<'static>, Failed> {
    let Node::File(path, sequence) = node(files, &mut arguments)? else {
        return Err(nfsstat3::NFS3ERR_INVAL.into());
    };
    let opened = files.open(&path, sequence).await?;
    if opened.version.content.metadata.kind != Kind::Link {
        return Err(nfsstat3::NFS3ERR_INVAL.into());
    }
    let target = files.bytes(&opened, 0, opened.version.content.size.0).await?;
    let entry = Entry::File(opened.version);
    let symlink_attributes = some(files, Some(&path), sequence, &entry);
    Ok(READLINK3resok { symlink_attributes, data: nfspath3::from(target) })
}

/// A part of a version. It says nothing about the state, so it also works while the replica may not answer reads.
async fn read(
    files: &Files,
    mut arguments: Input<'_>,
    caller: &Caller,
) -> Result<READ3resok<'static>, Failed> {
    let node = node(files, &mut arguments)?;
    let (offset, count) = (next(arguments.u64())?, next(arguments.u32())?);
    let Node::File(path, sequence) = node else { return Err(nfsstat3::NFS3ERR_ISDIR.into()) };
    let opened = files.open(&path, sequence).await?;
    let content = opened.version.content;
    if content.metadata.kind != Kind::File {
        return Err(nfsstat3::NFS3ERR_INVAL.into());
    }
    if !may_read(content.metadata.mode, caller) {
        return Err(nfsstat3::NFS3ERR_ACCES.into());
    }
    let begin = offset.min(content.size.0);
    let end = begin.saturating_add(u64::from(count.min(MAX_READ_BYTES))).min(content.size.0);
    let bytes = if begin == end { Vec::new() } else { files.bytes(&opened, begin, end).await? };
    let file_attributes = some(files, Some(&path), sequence, &Entry::File(opened.version));
    let (count, eof) = ((end - begin) as u32, end == content.size.0);
    Ok(READ3resok { file_attributes, count, eof, data: Opaque::owned(bytes) })
}

/// A requested part of a folder.
struct Part {
    folder: Option<Path>,
    listing: Arc<Listing>,
    dir_attributes: post_op_attr,
    /// Entries before it.
    skipped: usize,
}

impl Part {
    async fn new(
        files: &Files,
        arguments: &mut Input<'_>,
        caller: &Caller,
    ) -> Result<Self, Failed> {
        let node = node(files, arguments)?;
        let (cookie, verifier) = (next(arguments.u64())?, next(arguments.u64())?);
        let (at, entry) = files.current(&node).await?;
        expect_access(&entry, ACCESS3_READ, caller)?;
        let Node::Folder(folder) = node else { return Err(nfsstat3::NFS3ERR_NOTDIR.into()) };
        let begun = (cookie > 0).then_some(Sequence(verifier));
        let listing = files.listing(&folder, begun).await?;
        let dir_attributes = some(files, folder.as_ref(), at, &entry);
        let skipped = usize::try_from(cookie).unwrap_or(usize::MAX);
        Ok(Part { folder, listing, dir_attributes, skipped })
    }

    fn verifier(&self) -> cookieverf3 {
        cookieverf3(self.listing.at.0.to_be_bytes())
    }

    /// The entries of the part, with their cookies: `.` and `..` come first.
    fn entries(&self) -> impl Iterator<Item = (u64, Vec<u8>, Option<Path>, Entry)> {
        let above = self.folder.as_ref().and_then(Path::parent);
        let dots = [(&b"."[..], self.folder.clone()), (&b".."[..], above)];
        let dots = dots.into_iter().map(|(name, path)| (name.to_vec(), path, Entry::Folder(None)));
        let below = self.folder.as_ref().map_or_else(Vec::new, Path::prefix);
        // Not one after the other: clients read large folders in many parts.
        let names = self.listing.names.get(self.skipped.saturating_sub(DOTS)..).unwrap_or_default();
        let names = names.iter().filter_map(move |(name, entry)| {
            let path = Path::from_bytes(&[&below[..], name].concat()).ok()?;
            Some((name.clone(), Some(path), *entry))
        });
        let all = dots.skip(self.skipped).chain(names);
        let first = (self.skipped as u64).saturating_add(1);
        (first..).zip(all).map(|(cookie, (name, path, entry))| (cookie, name, path, entry))
    }
}

/// Collects entries while there is room; also returns whether these are the last ones.
fn collected<T: Pack>(
    mut entries: impl Iterator<Item = T>,
    room: usize,
) -> Result<(nfs3_types::xdr_codec::List<T>, bool), Failed> {
    let mut list = BoundedList::new(room);
    let mut is_empty = true;
    let eof = loop {
        let Some(entry) = entries.next() else { break true };
        if list.try_push(entry).is_err() {
            break false;
        }
        is_empty = false;
    };
    if is_empty && !eof {
        return Err(nfsstat3::NFS3ERR_TOOSMALL.into());
    }
    Ok((list.into_inner(), eof))
}

fn room(count: u32) -> usize {
    (count.min(MAX_LISTING_BYTES) as usize).saturating_sub(AROUND_ENTRIES)
}

async fn read_folder(
    files: &Files,
    mut arguments: Input<'_>,
    caller: &Caller,
) -> Result<READDIR3resok<'static>, Failed> {
    let part = Part::new(files, &mut arguments, caller).await?;
    let count = next(arguments.u32())?;
    let entries = part.entries().map(|(cookie, name, path, entry)| {
        let fileid = files.attributes(path.as_ref(), part.listing.at, &entry).fileid;
        entry3 { fileid, name: name.into(), cookie }
    });
    let (entries, eof) = collected(entries, room(count))?;
    let reply = dirlist3 { entries, eof };
    let cookieverf = part.verifier();
    Ok(READDIR3resok { dir_attributes: part.dir_attributes, cookieverf, reply })
}

async fn read_folder_plus(
    files: &Files,
    mut arguments: Input<'_>,
    caller: &Caller,
) -> Result<READDIRPLUS3resok<'static>, Failed> {
    let part = Part::new(files, &mut arguments, caller).await?;
    let (_names, count) = (next(arguments.u32())?, next(arguments.u32())?);
    let entries = part.entries().map(|(cookie, name, path, entry)| {
        let attributes = files.attributes(path.as_ref(), part.listing.at, &entry);
        let fileid = attributes.fileid;
        let is_dot = cookie <= DOTS as u64;
        let node = match (path, &entry) {
            (Some(path), Entry::File(version)) => Node::File(path, version.sequence),
            (path, _) => Node::Folder(path),
        };
        entryplus3 {
            fileid,
            name: name.into(),
            cookie,
            // The attributes of the folder above are not in the listing.
            name_attributes: if is_dot {
                post_op_attr::None
            } else {
                post_op_attr::Some(attributes)
            },
            name_handle: if is_dot {
                post_op_fh3::None
            } else {
                post_op_fh3::Some(files.handle(&node))
            },
        }
    });
    let (entries, eof) = collected(entries, room(count))?;
    let reply = dirlistplus3 { entries, eof };
    let cookieverf = part.verifier();
    Ok(READDIRPLUS3resok { dir_attributes: part.dir_attributes, cookieverf, reply })
}

async fn root_attributes(files: &Files, arguments: &mut Input<'_>) -> Result<post_op_attr, Failed> {
    let node = node(files, arguments)?;
    let (at, entry) = files.current(&node).await?;
    Ok(some(files, node.path(), at, &entry))
}

async fn file_system_size(files: &Files, mut arguments: Input<'_>) -> Result<FSSTAT3resok, Failed> {
    let obj_attributes = root_attributes(files, &mut arguments).await?;
    let status = files.replica.status();
    Ok(FSSTAT3resok {
        obj_attributes,
        tbytes: status.bytes,
        fbytes: 0,
        abytes: 0,
        tfiles: status.objects,
        ffiles: 0,
        afiles: 0,
        invarsec: 0,
    })
}

async fn file_system_limits(
    files: &Files,
    mut arguments: Input<'_>,
) -> Result<FSINFO3resok, Failed> {
    let obj_attributes = root_attributes(files, &mut arguments).await?;
    Ok(FSINFO3resok {
        obj_attributes,
        rtmax: MAX_READ_BYTES,
        rtpref: MAX_READ_BYTES,
        rtmult: 4_096,
        // Nothing can be written, but clients refuse a server with less than for reads.
        wtmax: MAX_READ_BYTES,
        wtpref: MAX_READ_BYTES,
        wtmult: 4_096,
        dtpref: MAX_LISTING_BYTES,
        maxfilesize: MAX_BODY_BYTES.0,
        time_delta: nfstime3 { seconds: 0, nseconds: 1 },
        properties: FSF3_SYMLINK | FSF3_HOMOGENEOUS,
    })
}

async fn path_limits(files: &Files, mut arguments: Input<'_>) -> Result<PATHCONF3resok, Failed> {
    let obj_attributes = root_attributes(files, &mut arguments).await?;
    Ok(PATHCONF3resok {
        obj_attributes,
        linkmax: 1,
        name_max: NAME_BYTES as u32,
        no_trunc: true,
        chown_restricted: true,
        case_insensitive: false,
        case_preserving: true,
    })
}
