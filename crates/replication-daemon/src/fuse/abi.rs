//! The kernel's protocol: the messages of `linux/fuse.h`, version 7.31, as far as a read-only file system
//! needs them. Pure: bytes in, bytes out.

use std::time::Duration;

use lull_replication::types::{self, Metadata, Mode};

/// Version of the protocol: an older kernel reports its own.
const MAJOR: u32 = 7;
const MINOR: u32 = 31;
/// Linux 4.20 (2018): `max_pages`.
const MIN_MINOR: u32 = 28;

/// The kernel requests pages in the background, several at a time, and interrupts none of these requests.
const ASYNC_READ: u32 = 1 << 0;
/// So may lookups and listings in a folder. Otherwise one that waits blocks the others.
const PARALLEL_DIROPS: u32 = 1 << 18;
/// `max_pages` is said.
const MAX_PAGES: u32 = 1 << 22;
/// The targets of links are cached: each version of a link has its own inode.
const CACHE_SYMLINKS: u32 = 1 << 23;
/// A notification: the kernel has to look up all names again. Linux 6.16 (2025): before, names could only be
/// dropped one by one, under the lock of their folder, which a waiting lookup holds.
const INC_EPOCH: i32 = 8;
/// Seconds for which the kernel keeps what never changes.
const FOREVER: u64 = 1 << 30;
/// Pages of one read: 1 MiB.
const PAGES: u16 = 256;
/// Nothing is written, but no kernel accepts less.
const MAX_WRITE: u32 = 4_096;
/// Concurrent background requests: the maximum. One that waits for its body may do so until the origin is
/// back. Once the limit is reached, the kernel requests no further page of any file.
const BACKGROUND: u16 = u16::MAX;
/// With this many pending requests, the kernel reads nothing ahead.
const CONGESTED: u16 = 48;

/// The longest request: no write comes, so lookups and forgets are the longest. The kernel rejects less than
/// 8 kB.
pub(super) const MAX_REQUEST_BYTES: usize = 64 * 1024;
/// Bytes before each answer.
const HEAD: usize = 16;

const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// The kernel keeps the pages that it has of the inode.
const KEEP_CACHE: u32 = 1 << 1;

/// A request of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    /// The request's number, for its answer.
    pub(super) unique: u64,
    /// The inode in question.
    pub(super) node: u64,
    /// The user and the group of the calling process on this file system.
    pub(super) caller: (u32, u32),
    pub(super) operation: Operation<'a>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operation<'a> {
    Begin {
        major: u32,
        minor: u32,
        readahead: u32,
    },
    /// Whether the folder has such a name.
    Lookup(&'a [u8]),
    /// The kernel drops this many lookups of the inode.
    Forget(u64),
    /// The same of several inodes.
    ForgetMany(Vec<(u64, u64)>),
    Attributes,
    /// Whether the inode may be used in these ways, by the bits of access(2).
    Access(u32),
    /// The target of a symbolic link.
    Target,
    /// With the flags of open(2).
    Open(u32),
    OpenFolder,
    Read(Range),
    ReadFolder(Range),
    Close(u64),
    CloseFolder(u64),
    /// The size of the file system.
    Size,
    /// The process that waits for this request is being killed, or has received a signal.
    Interrupt(u64),
    End,
    /// Any operation that changes the tree.
    Write,
    /// An operation that this file system does not support.
    Other,
}

/// The part of an open file that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) handle: u64,
    pub(super) offset: u64,
    pub(super) size: u32,
}

/// Integers in the machine's order.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    /// The bytes before the first zero.
    fn name(&self) -> Option<&'a [u8]> {
        self.0.split(|byte| *byte == 0).next().filter(|name| name.len() < self.0.len())
    }

    fn range(&mut self) -> Option<Range> {
        Some(Range { handle: self.u64()?, offset: self.u64()?, size: self.u32()? })
    }
}

/// A request, if the bytes are valid.
pub(super) fn parse(bytes: &[u8]) -> Option<Request<'_>> {
    let mut from = Fields(bytes);
    let (length, opcode) = (from.u32()?, from.u32()?);
    let (unique, node) = (from.u64()?, from.u64()?);
    let caller = (from.u32()?, from.u32()?);
    // The process, and padding.
    from.u64()?;
    if length as usize != bytes.len() {
        return None;
    }
    let operation = match opcode {
        1 => Operation::Lookup(from.name()?),
        2 => Operation::Forget(from.u64()?),
        3 => Operation::Attributes,
        // SETATTR, SYMLINK, MKNOD, MKDIR, UNLINK, RMDIR, RENAME, LINK, WRITE, SETXATTR, REMOVEXATTR, CREATE,
        // FALLOCATE, RENAME2, COPY_FILE_RANGE, TMPFILE. The mount is read-only, so the kernel itself refuses
        // them.
        4 | 6 | 8..=13 | 16 | 21 | 24 | 35 | 43 | 45 | 47 | 51 => Operation::Write,
        5 => Operation::Target,
        14 => Operation::Open(from.u32()?),
        15 => Operation::Read(from.range()?),
        17 => Operation::Size,
        18 => Operation::Close(from.u64()?),
        26 => Operation::Begin { major: from.u32()?, minor: from.u32()?, readahead: from.u32()? },
        27 => Operation::OpenFolder,
        28 => Operation::ReadFolder(from.range()?),
        29 => Operation::CloseFolder(from.u64()?),
        34 => Operation::Access(from.u32()?),
        36 => Operation::Interrupt(from.u64()?),
        38 => Operation::End,
        42 => {
            let count = from.u32()?;
            from.u32()?;
            let one = |_| Some((from.u64()?, from.u64()?));
            Operation::ForgetMany((0..count).map(one).collect::<Option<_>>()?)
        }
        _ => Operation::Other,
    };
    Some(Request { unique, node, caller, operation })
}

/// The number of a request that is not understood, if it has one.
pub(super) fn unique_of(bytes: &[u8]) -> Option<u64> {
    Fields(bytes.get(8..)?).u64()
}

/// The attributes for `stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attributes {
    /// `st_ino`.
    pub(super) number: u64,
    pub(super) kind: Kind,
    pub(super) size: u64,
    /// Nanoseconds since 1970.
    pub(super) modified: i64,
    /// User and group.
    pub(super) owner: (u32, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Folder(Mode),
    File(Mode),
    Link,
}

impl Kind {
    /// The attributes of a version of an object.
    pub(super) fn of(metadata: &Metadata) -> Self {
        match metadata.kind {
            types::Kind::File => Kind::File(metadata.mode),
            types::Kind::Link => Kind::Link,
            types::Kind::Folder => Kind::Folder(metadata.mode),
        }
    }
}

impl Attributes {
    /// For how long the kernel may cache them.
    fn seconds(&self) -> u64 {
        if matches!(self.kind, Kind::Folder(_)) { 0 } else { FOREVER }
    }
}

/// The bits of access(2).
pub(super) const READ: u32 = 4;
pub(super) const EXECUTE: u32 = 1;
/// The kernel opens the file to execute it (`__FMODE_EXEC` of `linux/fs.h`).
const OPEN_TO_EXECUTE: u32 = 0x20;

impl Kind {
    /// Whether `caller` may use it in these ways, the bits of access(2), if it belongs to `owner`.
    /// Supplementary groups of the caller are unknown here, so they give no right.
    pub(super) fn allows(self, ways: u32, caller: (u32, u32), owner: (u32, u32)) -> bool {
        let mode = self.mode();
        let allowed = match caller {
            // Root reads everything, and executes files that any user may execute (path_resolution(7)).
            (0, _) if mode & 0o111 == 0 => !EXECUTE,
            (0, _) => u32::MAX,
            (user, _) if user == owner.0 => mode >> 6,
            (_, group) if group == owner.1 => mode >> 3,
            _ => mode,
        };
        ways & 0o7 & !allowed == 0
    }

    /// Whether `caller` may open it with these flags of open(2).
    pub(super) fn opens(self, flags: u32, caller: (u32, u32), owner: (u32, u32)) -> bool {
        let way = if flags & OPEN_TO_EXECUTE == 0 { READ } else { EXECUTE };
        self.allows(way, caller, owner)
    }

    fn mode(self) -> u32 {
        match self {
            Kind::Folder(mode) => FOLDER | u32::from(mode.bits()),
            Kind::File(mode) => FILE | u32::from(mode.bits()),
            Kind::Link => LINK | u32::from(Mode::LINK.bits()),
        }
    }
}

/// An answer that is being written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer(Vec<u8>);

impl Answer {
    fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn attributes(self, of: &Attributes) -> Self {
        let seconds = of.modified.div_euclid(1_000_000_000).cast_unsigned();
        let nanos = u32::try_from(of.modified.rem_euclid(1_000_000_000)).unwrap_or(0);
        let (user, group) = of.owner;
        let this = self.u64(of.number).u64(of.size).u64(of.size.div_ceil(512));
        let this = this.u64(seconds).u64(seconds).u64(seconds);
        let this = this.u32(nanos).u32(nanos).u32(nanos);
        // One link also for folders: the subfolders of a folder are not counted.
        let this = this.u32(of.kind.mode()).u32(1).u32(user).u32(group);
        // No device; the best block size for reads; flags.
        this.u32(0).u32(64 * 1024).u32(0)
    }

    /// The inode of a name, which the kernel may cache for this long. A version's attributes never change;
    /// those of a folder must not be cached.
    pub(super) fn entry(node: u64, of: &Attributes, remembered: Duration) -> Self {
        // Inodes have no generations: their numbers are never reused.
        let this = Answer::default().u64(node).u64(0);
        let this = this.u64(remembered.as_secs()).u64(of.seconds());
        this.u32(remembered.subsec_nanos()).u32(0).attributes(of)
    }

    /// The attributes of an inode.
    pub(super) fn of_attributes(of: &Attributes) -> Self {
        Answer::default().u64(of.seconds()).u32(0).u32(0).attributes(of)
    }

    /// A file is open. The pages of its inode never go stale.
    pub(super) fn opened(handle: u64) -> Self {
        Answer::default().u64(handle).u32(KEEP_CACHE).u32(0)
    }

    /// A folder is open.
    pub(super) fn opened_folder(handle: u64) -> Self {
        Answer::default().u64(handle).u32(0).u32(0)
    }

    /// The size of the file system; it is full.
    pub(super) fn size(bytes: u64, files: u64) -> Self {
        const BLOCK: u32 = 4_096;
        let this = Answer::default().u64(bytes.div_ceil(u64::from(BLOCK))).u64(0).u64(0);
        let this = this.u64(files).u64(0).u32(BLOCK).u32(255).u32(BLOCK).u32(0);
        this.u64(0).u64(0).u64(0)
    }

    /// The connection begins; none if the kernel is too old.
    pub(super) fn init(major: u32, minor: u32, readahead: u32) -> Option<Self> {
        if major < MAJOR || (major == MAJOR && minor < MIN_MINOR) {
            return None;
        }
        let flags = ASYNC_READ | PARALLEL_DIROPS | MAX_PAGES | CACHE_SYMLINKS;
        let mut this = Answer::default().u32(MAJOR).u32(MINOR).u32(readahead).u32(flags);
        for value in [BACKGROUND, CONGESTED] {
            this.0.extend_from_slice(&value.to_ne_bytes());
        }
        // Times are exact to the nanosecond.
        this = this.u32(MAX_WRITE).u32(1);
        for value in [PAGES, 0] {
            this.0.extend_from_slice(&value.to_ne_bytes());
        }
        Some(this.u64(0).u64(0).u64(0).u64(0))
    }

    /// Adds a name of a folder if it fits into `size` bytes. `next` is the offset with which the kernel asks
    /// for the following name.
    pub(super) fn add_name(
        &mut self,
        (number, kind): (u64, Kind),
        name: &[u8],
        next: u64,
        size: usize,
    ) -> bool {
        let length = 24 + name.len();
        let padded = length.next_multiple_of(8);
        if self.0.len() + padded > size {
            return false;
        }
        let count = u32::try_from(name.len()).unwrap_or(u32::MAX);
        let mut this =
            core::mem::take(self).u64(number).u64(next).u32(count).u32(kind.mode() >> 12);
        this.0.extend_from_slice(name);
        this.0.resize(this.0.len() + padded - length, 0);
        *self = this;
        true
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The notification that all names have to be looked up again.
pub(super) fn forget_names() -> [u8; HEAD] {
    // The number of a notification is positive.
    head(0, -INC_EPOCH, 0)
}

/// The header of an answer of `length` bytes; an error is a number of `errno.h`, or zero.
pub(super) fn head(unique: u64, error: i32, length: usize) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    let length = u32::try_from(HEAD + length).unwrap_or(u32::MAX);
    head[..4].copy_from_slice(&length.to_ne_bytes());
    head[4..8].copy_from_slice(&(-error).to_ne_bytes());
    head[8..].copy_from_slice(&unique.to_ne_bytes());
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(opcode: u32, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(40 + body.len()).unwrap();
        let mut bytes =
            Answer::default().u32(length).u32(opcode).u64(7).u64(9).u32(3).u32(4).u64(0).0;
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn requests_are_parsed() {
        let numbers = |list: &[u64]| {
            list.iter().fold(Answer::default(), |answer, number| answer.u64(*number)).0
        };
        let range = Range { handle: 1, offset: 2, size: 3 };
        for (opcode, body, expected) in [
            (1, b"name\0".to_vec(), Operation::Lookup(b"name")),
            (2, numbers(&[5]), Operation::Forget(5)),
            (14, vec![32, 0, 0, 0, 0, 0, 0, 0], Operation::Open(u32::from_ne_bytes([32, 0, 0, 0]))),
            (15, numbers(&[1, 2, 3, 4, 5]), Operation::Read(range)),
            (28, numbers(&[1, 2, 3, 4, 5]), Operation::ReadFolder(range)),
            (34, vec![1, 0, 0, 0, 0, 0, 0, 0], Operation::Access(u32::from_ne_bytes([1, 0, 0, 0]))),
            (35, b"any".to_vec(), Operation::Write),
            (36, numbers(&[8]), Operation::Interrupt(8)),
            (42, numbers(&[2, 1, 2, 3, 4]), Operation::ForgetMany(vec![(1, 2), (3, 4)])),
            (52, Vec::new(), Operation::Other),
        ] {
            let bytes = request(opcode, &body);
            let expected = Request { unique: 7, node: 9, caller: (3, 4), operation: expected };
            assert_eq!(parse(&bytes), Some(expected), "{opcode}");
        }
    }

    #[test]
    fn mode_controls_read_and_execute_permission() {
        let (root, owner, member, other) = ((0, 0), (7, 8), (9, 8), (9, 9));
        for (mode, reads, executes) in [
            (0o644, vec![root, owner, member, other], vec![]),
            (0o600, vec![root, owner], vec![]),
            (0o640, vec![root, owner, member], vec![]),
            (0o604, vec![root, owner, other], vec![]),
            (0o711, vec![root, owner], vec![root, owner, member, other]),
            (0o110, vec![root], vec![root, owner, member]),
        ] {
            let kind = Kind::File(Mode::new(mode));
            for caller in [root, owner, member, other] {
                let read = kind.opens(0, caller, owner);
                assert_eq!(read, reads.contains(&caller), "{mode:o} read by {caller:?}");
                let executed = kind.opens(OPEN_TO_EXECUTE, caller, owner);
                assert_eq!(executed, executes.contains(&caller), "{mode:o} run by {caller:?}");
                assert_eq!(kind.allows(READ, caller, owner), read);
            }
        }
        assert!(Kind::Folder(Mode::IMPLIED).allows(READ | EXECUTE, other, owner));
    }

    #[test]
    fn truncated_request_is_rejected() {
        for (opcode, body) in [(1, &b"name"[..]), (2, &[0; 7]), (42, &[9; 16]), (26, &[0; 8])] {
            assert_eq!(parse(&request(opcode, body)), None, "{opcode}");
        }
        let whole = request(1, b"name\0");
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]), None, "{end} bytes");
        }
    }

    #[test]
    fn answers_have_the_lengths_of_the_header_file() {
        let attributes = Attributes {
            number: 2,
            kind: Kind::File(Mode::EXECUTABLE),
            size: 513,
            modified: -1,
            owner: (0, 0),
        };
        for (answer, length) in [
            (Answer::entry(2, &attributes, Duration::from_millis(1_500)), 128),
            (Answer::of_attributes(&attributes), 104),
            (Answer::opened(1), 16),
            (Answer::size(1, 1), 80),
            (Answer::init(7, 31, 0).unwrap(), 64),
        ] {
            assert_eq!(answer.bytes().len(), length, "{answer:?}");
        }
        assert_eq!(Answer::init(7, 27, 0), None);
        assert_eq!(head(7, 2, 0)[4..8], (-2_i32).to_ne_bytes());
        assert_eq!(forget_names()[4..8], 8_i32.to_ne_bytes());
    }

    #[test]
    fn names_are_added_while_there_is_room() {
        let mut answer = Answer::default();
        assert!(answer.add_name((1, Kind::Folder(Mode::IMPLIED)), b"12345678", 1, 64));
        assert_eq!(answer.bytes().len(), 32);
        assert!(answer.add_name((1, Kind::Folder(Mode::IMPLIED)), b"1", 2, 64));
        assert_eq!(answer.bytes().len(), 64);
        assert!(!answer.add_name((1, Kind::Folder(Mode::IMPLIED)), b"1", 3, 64));
    }
}
