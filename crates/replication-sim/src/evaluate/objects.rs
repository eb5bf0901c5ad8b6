//! The objects of a workload, in the types of the protocol.

use lull_cc::Bytes;
use lull_replication::origin::{self, Append};
use lull_replication::path::Path;
use lull_replication::replica::{self, Object, ReadTarget, Request};
use lull_replication::time::WallTime;
use lull_replication::types::{
    Change, Commit, Content, Digest, Incarnation, Metadata, Payload, Sequence, Version,
};

use super::Workload;

/// The path of an object.
pub(super) fn path(object: u32) -> Path {
    Path::new(&object.to_string()).expect("digits are a name")
}

/// A read of an object.
pub(super) fn request(object: u32) -> Request {
    Request { target: ReadTarget::Object(path(object)), after: Sequence::ZERO }
}

/// A body that no other version has.
pub(super) fn payload(number: u64, size: Bytes) -> Payload<()> {
    Payload { digest: Digest::of(&number.to_le_bytes()), size, bytes: () }
}

/// All objects as made by the first commit, at the origin and at a replica.
pub(super) fn beginning(workload: &Workload) -> (origin::Image, replica::Image) {
    let objects = (0..).zip(&workload.objects).map(|(object, size)| {
        let Payload { digest, size, .. } = payload(u64::MAX - u64::from(object), *size);
        (path(object), Content { digest, size, metadata: Metadata::default() })
    });
    let changes = objects.map(|(path, content)| Change { path, content: Some(content) }).collect();
    let commit = Commit { sequence: Sequence(1), stamp: WallTime::default(), changes };
    let mut origin = origin::Image::empty([1; 32]);
    let inline = Vec::new();
    let (log_after, chain_from) = (Sequence::ZERO, Sequence::ZERO);
    origin.apply(&Append::<()> { commits: vec![commit], inline, log_after, chain_from });
    origin.incarnation = Incarnation(1);
    let valid = |(path, version): (&Path, &Version)| {
        (path.clone(), Object { version: *version, valid: true })
    };
    let replica = replica::Image {
        incarnation: Incarnation(1),
        position: Some(origin.last()),
        objects: origin.objects.iter().map(valid).collect(),
    };
    (origin, replica)
}
