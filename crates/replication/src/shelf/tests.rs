//! The shelf of bodies.

use super::*;

fn payload(byte: u8) -> Payload<()> {
    Payload { digest: Digest([byte; 32]), size: Bytes(10), bytes: () }
}

fn drained(shelf: &mut Shelf<()>) -> Vec<BodyEffect<()>> {
    core::iter::from_fn(|| shelf.poll_effect()).collect()
}

#[test]
fn body_is_stored_once_and_dropped_with_its_last_reference() {
    let mut shelf = Shelf::new([]);
    let digest = payload(1).digest;
    shelf.store_referenced(payload(1));
    shelf.store_referenced(payload(1));
    assert_eq!(drained(&mut shelf), [BodyEffect::Store(payload(1))]);
    assert!(!shelf.is_stored(&digest));
    shelf.handle_stored(&digest, Ok(()));
    assert!(shelf.is_stored(&digest));
    shelf.release(&digest);
    assert_eq!(drained(&mut shelf), []);
    shelf.release(&digest);
    assert_eq!(drained(&mut shelf), [BodyEffect::Drop(digest)]);
    shelf.handle_dropped(&digest);
    assert_eq!(shelf.bytes(), Bytes(0));
}

#[test]
fn body_requested_during_its_deletion_is_stored_afterwards() {
    let mut shelf = Shelf::new([(payload(1).digest, Bytes(10))]);
    let digest = payload(1).digest;
    shelf.collect();
    assert_eq!(drained(&mut shelf), [BodyEffect::Drop(digest)]);
    assert!(!shelf.expect(digest, Bytes(10)), "it would be deleted with the old one");
    shelf.store_referenced(payload(1));
    assert_eq!(drained(&mut shelf), [], "both at once may end without the body");
    shelf.handle_dropped(&digest);
    assert_eq!(drained(&mut shelf), [BodyEffect::Store(payload(1))]);
    shelf.handle_stored(&digest, Ok(()));
    assert!(shelf.is_stored(&digest));
    assert_eq!(shelf.take_waited(), 1);
}

#[test]
fn unreferenced_body_is_dropped_once_stored() {
    let mut shelf = Shelf::new([]);
    let digest = payload(1).digest;
    shelf.store_referenced(payload(1));
    shelf.release(&digest);
    drained(&mut shelf);
    shelf.handle_stored(&digest, Ok(()));
    assert_eq!(drained(&mut shelf), [BodyEffect::Drop(digest)]);
    assert_eq!((shelf.bytes(), shelf.kept()), (Bytes(10), Bytes(0)));
    shelf.store_referenced(payload(1));
    assert_eq!(shelf.kept(), Bytes(10));
    shelf.release(&digest);
    shelf.handle_dropped(&digest);
    assert_eq!((shelf.bytes(), shelf.kept()), (Bytes(0), Bytes(0)));
}

#[test]
fn body_is_absent_if_the_disk_is_full() {
    let mut shelf = Shelf::new([]);
    let digest = payload(1).digest;
    shelf.store_referenced(payload(1));
    shelf.handle_stored(&digest, Err(DiskFull));
    assert!(!shelf.is_stored(&digest));
    assert_eq!(shelf.bytes(), Bytes(0));
    shelf.release(&digest);
    assert_eq!(drained(&mut shelf), [BodyEffect::Store(payload(1))]);
}
#[test]
fn restored_body_is_kept_for_all_references() {
    let mut shelf = Shelf::new([(Digest([1; 32]), Bytes(10))]);
    let digest = payload(1).digest;
    shelf.refer(&digest);
    shelf.miss(&digest);
    shelf.need(&Digest([2; 32]), Bytes(10));
    assert!(!shelf.is_stored(&digest));
    assert_eq!(shelf.bytes(), Bytes(0));
    shelf.store_referenced(payload(1));
    shelf.store_referenced(payload(2));
    let stored = [BodyEffect::Store(payload(1)), BodyEffect::Store(payload(2))];
    assert_eq!(drained(&mut shelf), stored);
    assert!(!shelf.handle_stored(&digest, Err(DiskFull)));
    shelf.release(&digest);
    assert!(!shelf.is_stored(&digest));
    shelf.store_referenced(payload(1));
    assert!(shelf.handle_stored(&digest, Ok(())));
    assert_eq!(shelf.bytes(), Bytes(20));
    drained(&mut shelf);
    shelf.release(&digest);
    assert!(shelf.is_stored(&digest));
    shelf.release(&digest);
    assert_eq!(drained(&mut shelf), [BodyEffect::Drop(digest)]);
}

#[test]
fn pinned_body_stays_and_a_lost_one_ignores_old_pins() {
    let mut shelf = Shelf::new([(payload(1).digest, Bytes(10))]);
    let digest = payload(1).digest;
    shelf.refer(&digest);
    let (one, other) = (shelf.pin(&digest), shelf.pin(&digest));
    let (one, other) = (one.expect("it is there"), other.expect("it is there"));
    shelf.release(&digest);
    shelf.unpin(one);
    assert_eq!((shelf.is_pinned(&digest), drained(&mut shelf)), (true, Vec::new()));
    shelf.unpin(other);
    assert!(!shelf.is_pinned(&digest));
    assert_eq!(drained(&mut shelf), [BodyEffect::Drop(digest)]);
    assert_eq!(shelf.pin(&digest), None, "it goes");
    shelf.handle_dropped(&digest);
    // Another reader finds that it is corrupt, and it is stored again.
    shelf.store_referenced(payload(1));
    shelf.handle_stored(&digest, Ok(()));
    let before = shelf.pin(&digest).expect("it is there");
    shelf.lose(&digest);
    assert!(!shelf.is_pinned(&digest));
    shelf.store_referenced(payload(1));
    drained(&mut shelf);
    shelf.handle_stored(&digest, Ok(()));
    shelf.unpin(before);
    assert!(shelf.is_stored(&digest) && drained(&mut shelf).is_empty());
}

#[test]
fn unreferenced_lost_body_leaves_no_state() {
    let digest = Digest([1; 32]);
    let mut missed = Shelf::<()>::new([(digest, Bytes(10))]);
    missed.refer(&digest);
    missed.miss(&digest);
    let mut needed = Shelf::new([]);
    needed.need(&digest, Bytes(10));
    for mut shelf in [missed, needed] {
        shelf.release(&digest);
        assert_eq!(drained(&mut shelf), [BodyEffect::Drop(digest)]);
        assert_eq!(shelf.kept(), Bytes(0));
        shelf.handle_dropped(&digest);
        assert!(shelf.entries.is_empty());
        assert_eq!((shelf.bytes(), shelf.leaving), (Bytes(0), 0));
    }
}

#[test]
fn corrupt_body_is_dropped_and_may_be_stored_again() {
    let digest = payload(1).digest;
    let mut shelf = Shelf::new([(digest, Bytes(10))]);
    shelf.refer(&digest);
    shelf.discard(&digest);
    assert_eq!((shelf.is_stored(&digest), shelf.kept()), (false, Bytes(0)));
    shelf.discard(&digest);
    assert_eq!(drained(&mut shelf), [BodyEffect::Drop(digest)], "once");
    shelf.store_referenced(payload(1));
    assert_eq!(drained(&mut shelf), [], "what is there has to go first");
    shelf.handle_dropped(&digest);
    assert_eq!(drained(&mut shelf), [BodyEffect::Store(payload(1))]);
    shelf.handle_stored(&digest, Ok(()));
    assert!(shelf.is_stored(&digest));
    assert_eq!((shelf.bytes(), shelf.kept()), (Bytes(10), Bytes(10)));
}
