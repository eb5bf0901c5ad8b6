//! References to bodies.

use super::*;

fn payload(byte: u8) -> Payload<()> {
    Payload { digest: Digest([byte; 32]), size: Bytes(10), bytes: () }
}

fn drained(references: &mut BodyReferences<()>) -> Vec<BodyEffect<()>> {
    core::iter::from_fn(|| references.poll_effect()).collect()
}

#[test]
fn body_is_stored_once_and_dropped_with_its_last_reference() {
    let mut references = BodyReferences::new([]);
    let digest = payload(1).digest;
    references.store_referenced(payload(1));
    references.store_referenced(payload(1));
    assert_eq!(drained(&mut references), [BodyEffect::Store(payload(1))]);
    assert!(!references.is_stored(&digest));
    references.handle_stored(&digest, Ok(()));
    assert!(references.is_stored(&digest));
    references.release(&digest);
    assert_eq!(drained(&mut references), []);
    references.release(&digest);
    assert_eq!(drained(&mut references), [BodyEffect::Drop(digest)]);
    references.handle_dropped(&digest);
    assert_eq!(references.bytes(), Bytes(0));
}

#[test]
fn body_requested_during_its_deletion_is_stored_afterwards() {
    let mut references = BodyReferences::new([(payload(1).digest, Bytes(10))]);
    let digest = payload(1).digest;
    references.collect();
    assert_eq!(drained(&mut references), [BodyEffect::Drop(digest)]);
    assert!(!references.expect(digest, Bytes(10)), "it would be deleted with the old one");
    references.store_referenced(payload(1));
    assert_eq!(drained(&mut references), [], "both at once may end without the body");
    references.handle_dropped(&digest);
    assert_eq!(drained(&mut references), [BodyEffect::Store(payload(1))]);
    references.handle_stored(&digest, Ok(()));
    assert!(references.is_stored(&digest));
    assert_eq!(references.take_waited(), 1);
}

#[test]
fn unreferenced_body_is_dropped_once_stored() {
    let mut references = BodyReferences::new([]);
    let digest = payload(1).digest;
    references.store_referenced(payload(1));
    references.release(&digest);
    drained(&mut references);
    references.handle_stored(&digest, Ok(()));
    assert_eq!(drained(&mut references), [BodyEffect::Drop(digest)]);
    assert_eq!((references.bytes(), references.kept()), (Bytes(10), Bytes(0)));
    references.store_referenced(payload(1));
    assert_eq!(references.kept(), Bytes(10));
    references.release(&digest);
    references.handle_dropped(&digest);
    assert_eq!((references.bytes(), references.kept()), (Bytes(0), Bytes(0)));
}

#[test]
fn body_is_absent_if_the_disk_is_full() {
    let mut references = BodyReferences::new([]);
    let digest = payload(1).digest;
    references.store_referenced(payload(1));
    references.handle_stored(&digest, Err(DiskFull));
    assert!(!references.is_stored(&digest));
    assert_eq!(references.bytes(), Bytes(0));
    references.release(&digest);
    assert_eq!(drained(&mut references), [BodyEffect::Store(payload(1))]);
}
#[test]
fn restored_body_is_kept_for_all_references() {
    let mut references = BodyReferences::new([(Digest([1; 32]), Bytes(10))]);
    let digest = payload(1).digest;
    references.refer(&digest);
    references.miss(&digest);
    references.need(&Digest([2; 32]), Bytes(10));
    assert!(!references.is_stored(&digest));
    assert_eq!(references.bytes(), Bytes(0));
    references.store_referenced(payload(1));
    references.store_referenced(payload(2));
    let stored = [BodyEffect::Store(payload(1)), BodyEffect::Store(payload(2))];
    assert_eq!(drained(&mut references), stored);
    assert!(!references.handle_stored(&digest, Err(DiskFull)));
    references.release(&digest);
    assert!(!references.is_stored(&digest));
    references.store_referenced(payload(1));
    assert!(references.handle_stored(&digest, Ok(())));
    assert_eq!(references.bytes(), Bytes(20));
    drained(&mut references);
    references.release(&digest);
    assert!(references.is_stored(&digest));
    references.release(&digest);
    assert_eq!(drained(&mut references), [BodyEffect::Drop(digest)]);
}

#[test]
fn pinned_body_stays_and_a_lost_one_ignores_old_pins() {
    let mut references = BodyReferences::new([(payload(1).digest, Bytes(10))]);
    let digest = payload(1).digest;
    references.refer(&digest);
    let (one, other) = (references.pin(&digest), references.pin(&digest));
    let (one, other) = (one.expect("it is there"), other.expect("it is there"));
    references.release(&digest);
    references.unpin(one);
    assert_eq!((references.is_pinned(&digest), drained(&mut references)), (true, Vec::new()));
    references.unpin(other);
    assert!(!references.is_pinned(&digest));
    assert_eq!(drained(&mut references), [BodyEffect::Drop(digest)]);
    assert_eq!(references.pin(&digest), None, "it goes");
    references.handle_dropped(&digest);
    // Another reader finds that it is corrupt, and it is stored again.
    references.store_referenced(payload(1));
    references.handle_stored(&digest, Ok(()));
    let before = references.pin(&digest).expect("it is there");
    references.lose(&digest);
    assert!(!references.is_pinned(&digest));
    references.store_referenced(payload(1));
    drained(&mut references);
    references.handle_stored(&digest, Ok(()));
    references.unpin(before);
    assert!(references.is_stored(&digest) && drained(&mut references).is_empty());
}

#[test]
fn unreferenced_lost_body_leaves_no_state() {
    let digest = Digest([1; 32]);
    let mut missed = BodyReferences::<()>::new([(digest, Bytes(10))]);
    missed.refer(&digest);
    missed.miss(&digest);
    let mut needed = BodyReferences::new([]);
    needed.need(&digest, Bytes(10));
    for mut references in [missed, needed] {
        references.release(&digest);
        assert_eq!(drained(&mut references), [BodyEffect::Drop(digest)]);
        assert_eq!(references.kept(), Bytes(0));
        references.handle_dropped(&digest);
        assert!(references.entries.is_empty());
        assert_eq!((references.bytes(), references.leaving), (Bytes(0), 0));
    }
}

#[test]
fn corrupt_body_is_dropped_and_may_be_stored_again() {
    let digest = payload(1).digest;
    let mut references = BodyReferences::new([(digest, Bytes(10))]);
    references.refer(&digest);
    references.discard(&digest);
    assert_eq!((references.is_stored(&digest), references.kept()), (false, Bytes(0)));
    references.discard(&digest);
    assert_eq!(drained(&mut references), [BodyEffect::Drop(digest)], "once");
    references.store_referenced(payload(1));
    assert_eq!(drained(&mut references), [], "the stored body is dropped first");
    references.handle_dropped(&digest);
    assert_eq!(drained(&mut references), [BodyEffect::Store(payload(1))]);
    references.handle_stored(&digest, Ok(()));
    assert!(references.is_stored(&digest));
    assert_eq!((references.bytes(), references.kept()), (Bytes(10), Bytes(10)));
}
