//! Handles, calls and permissions.

use lull_replication::path::Path;
use lull_replication::types::{Mode, Sequence};
use nfs3_types::nfs3::{ACCESS3_EXECUTE, ACCESS3_LOOKUP, ACCESS3_READ};

use super::attributes::{access, may_read};
use super::handles::{HandleError, Handles, MAX_HANDLE_BYTES, Node};
use super::rpc::{Call, Caller, Refused, read_record, reply};

fn path(text: &str) -> Path {
    Path::new(text).expect("a path")
}

#[test]
fn handles_of_short_paths_survive_a_restart() {
    let long = "long/".repeat(20) + "name";
    let nodes =
        |name: &str| [Node::Folder(Some(path(name))), Node::File(path(name), Sequence(1 << 40))];
    let mut handles = Handles::default();
    for node in nodes("a/b").into_iter().chain([Node::Folder(None)]) {
        let handle = handles.handle(&node);
        assert_eq!(Handles::default().node(&handle), Ok(node));
    }
    for node in nodes(&long) {
        let handle = handles.handle(&node);
        assert!(handle.len() <= MAX_HANDLE_BYTES);
        assert_eq!(handles.node(&handle), Ok(node));
        assert_eq!(Handles::default().node(&handle), Err(HandleError::Stale));
    }
    // The longest that fits, and one byte more.
    for (length, is_stale) in [(MAX_HANDLE_BYTES - 9, false), (MAX_HANDLE_BYTES - 8, true)] {
        let handle = handles.handle(&Node::File(path(&"x".repeat(length)), Sequence(1)));
        assert_eq!(Handles::default().node(&handle).is_err(), is_stale, "{length}");
    }
}

#[test]
fn handles_of_other_servers_are_rejected() {
    for handle in [
        &b""[..],
        b"\x00",
        b"\x03abc",
        b"\x02\0\0\0\0\0\0\0",
        b"\x02\0\0\0\0\0\0\0\x01",
        b"\x01/a",
        b"\x01a/../b",
        b"\x81short",
        b"\x01.lull",
    ] {
        assert_eq!(Handles::default().node(handle), Err(HandleError::Bad), "{handle:?}");
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[test]
fn call_has_the_user_that_the_client_claims() {
    // The credentials have a stamp, a name, the user, its group and two others.
    let credentials = [1, 32, 7, 2, 0x6162_0000, 1_000, 100, 2, 4, 5];
    let record = words(&[&[9, 0, 2, 100_003, 3, 1][..], &credentials, &[0, 0, 42]].concat());
    let (xid, call) = Call::read(&record).expect("a call");
    let mut call = call.expect("a good one");
    assert_eq!((xid, call.program, call.version, call.procedure), (9, 100_003, 3, 1));
    assert_eq!(call.caller, Caller { user: 1_000, groups: vec![100, 4, 5] });
    assert_eq!(call.arguments.u32(), Some(42));
    assert_eq!(call.arguments.u32(), None);
}

#[test]
fn lengths_that_exceed_the_record_are_garbage() {
    let head = [9, 0, 2, 100_003, 3, 1];
    for tail in [
        &[][..],
        &[1, u32::MAX],
        &[1, 400],
        // Four billion groups.
        &[1, 20, 0, 0, 0, 0, u32::MAX, 0, 0],
        &[0, 0, 0, u32::MAX],
    ] {
        let record = words(&[&head[..], tail].concat());
        let (_, call) = Call::read(&record).expect("a call");
        assert_eq!(call.err(), Some(Refused::Garbage), "{tail:?}");
    }
    let other = words(&[9, 0, 3, 0, 0, 0]);
    let (_, other) = Call::read(&other).expect("a call");
    assert_eq!(other.err(), Some(Refused::OtherRpc));
    assert!(Call::read(&words(&[9, 1, 2])).is_none(), "a reply is no call");
}

#[test]
fn replies_say_why_a_call_is_refused() {
    let last = |length: u32| length | 1 << 31;
    let done = reply(7, Ok(words(&[5])));
    assert_eq!(done, words(&[last(28), 7, 1, 0, 0, 0, 0, 5]));
    let version = reply(7, Err(Refused::OtherVersion(3)));
    assert_eq!(version, words(&[last(32), 7, 1, 0, 0, 0, 2, 3, 3]));
    let rpc = reply(7, Err(Refused::OtherRpc));
    assert_eq!(rpc, words(&[last(24), 7, 1, 1, 0, 2, 2]));
}

#[tokio::test]
async fn record_is_joined_from_its_fragments() {
    let last = |length: u32| length | 1 << 31;
    let bytes = [words(&[4]), b"abcd".to_vec(), words(&[last(2)]), b"efrest".to_vec()].concat();
    let mut reader = &bytes[..];
    let record = read_record(&mut reader).await.expect("a record");
    assert_eq!(record.as_deref(), Some(&b"abcdef"[..]));
    assert_eq!(reader, b"rest");
    let long = words(&[last(u32::MAX >> 1)]);
    assert!(read_record(&mut &long[..]).await.is_err());
    assert!(read_record(&mut &words(&[last(8), 1])[..]).await.is_err(), "it is cut off");
    assert_eq!(read_record(&mut &b""[..]).await.expect("the end"), None);
}

#[test]
fn permissions_apply_to_the_claimed_user() {
    let caller = |user, group| Caller { user, groups: vec![group] };
    let (root, member, other) = (caller(0, 0), caller(1_000, 0), caller(1_000, 100));
    let (read, execute, look) = (ACCESS3_READ, ACCESS3_EXECUTE, ACCESS3_LOOKUP);
    for (is_folder, mode, [of_root, of_member, of_other]) in [
        (false, 0o644, [read; 3]),
        (false, 0o640, [read, read, 0]),
        (false, 0o600, [read, 0, 0]),
        (false, 0o711, [read | execute, execute, execute]),
        (true, 0o755, [read | look; 3]),
        (true, 0o700, [read | look, 0, 0]),
        (true, 0o600, [read | look, 0, 0]),
    ] {
        let rights =
            [&root, &member, &other].map(|caller| access(is_folder, Mode::new(mode), caller));
        assert_eq!(rights, [of_root, of_member, of_other], "{mode:o}");
    }
    assert!(may_read(Mode::new(0o711), &other), "the client may execute it");
    assert!(!may_read(Mode::new(0o600), &Caller::nobody()));
}
