//! The names of the bodies in a bucket.
//!
//! A name is never used twice: it is the hash of the body, the start of the process that stored it, and a
//! number. So a deletion that arrives late cannot delete a body that was stored again since, whether it was
//! delayed in the network or sent by an earlier process.

use std::collections::{BTreeMap, BTreeSet};

use lull_cc::Bytes;
use lull_replication::types::Digest;
use object_store::path::Path as Name;

/// A stored body: its name beside its hash, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Object {
    /// When the process that stored it began, in microseconds since 1970.
    pub(super) life: u64,
    /// The number among those of that process.
    pub(super) number: u32,
    /// Its length.
    pub(super) size: Bytes,
}

/// Digits of a hash, and of a life and a number.
const DIGITS: [usize; 2] = [64, 24];

impl Object {
    /// The name in the folder of bodies. There are 256 subfolders, so that a listing can be split.
    pub(super) fn name(&self, folder: &Name, digest: &Digest) -> Name {
        let digits = digest.to_string();
        let name = format!("{digits}.{:016x}{:08x}", self.life, self.number);
        folder.clone().join(&digits[..2]).join(name)
    }

    /// The hash and the object of a listed name; none for a name that is not from here.
    pub(super) fn parse(name: &Name, size: u64) -> Option<(Digest, Self)> {
        let (digits, object) = name.filename()?.split_once('.')?;
        let is_hex =
            |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if [digits.len(), object.len()] != DIGITS || !is_hex(digits) || !is_hex(object) {
            return None;
        }
        let digest = Digest(*blake3::Hash::from_hex(digits).ok()?.as_bytes());
        let life = u64::from_str_radix(&object[..16], 16).ok()?;
        let number = u32::from_str_radix(&object[16..], 16).ok()?;
        Some((digest, Object { life, number, size: Bytes(size) }))
    }
}

/// The bodies that are known to be in the bucket.
#[derive(Debug)]
pub(super) struct Catalog {
    life: u64,
    next: u32,
    objects: BTreeMap<Digest, Object>,
    /// The listing of the bucket is in `objects`.
    pub(super) is_listed: bool,
    /// Bodies that were dropped before that.
    dropped: BTreeSet<Digest>,
}

impl Catalog {
    pub(super) fn new(life: u64) -> Self {
        let (objects, dropped) = Default::default();
        Catalog { life, next: 0, objects, is_listed: false, dropped }
    }

    /// An object with an unused name.
    pub(super) fn new_object(&mut self, size: Bytes) -> Object {
        self.next += 1;
        Object { life: self.life, number: self.next, size }
    }

    pub(super) fn get(&self, digest: &Digest) -> Option<Object> {
        self.objects.get(digest).copied()
    }

    /// An object is stored. Returns an older one, which is not needed any more.
    pub(super) fn insert(&mut self, digest: Digest, object: Object) -> Option<Object> {
        self.objects.insert(digest, object)
    }

    /// The body is not needed any more. Returns its object, which may be deleted.
    pub(super) fn remove(&mut self, digest: &Digest) -> Option<Object> {
        if !self.is_listed {
            self.dropped.insert(*digest);
        }
        self.objects.remove(digest)
    }

    /// The listing is complete. Returns the objects that are not needed.
    pub(super) fn list(&mut self, found: Vec<(Digest, Object)>) -> Vec<(Digest, Object)> {
        let mut unneeded = Vec::new();
        for (digest, object) in found {
            if self.dropped.contains(&digest) {
                unneeded.push((digest, object));
                continue;
            }
            // The newest is kept: it was stored when the others were not needed any more.
            let known = self.objects.get(&digest).copied();
            match known {
                Some(known) if known > object => unneeded.push((digest, object)),
                Some(known) if known == object => {}
                _ => {
                    self.objects.insert(digest, object);
                    unneeded.extend(known.map(|known| (digest, known)));
                }
            }
        }
        self.dropped.clear();
        self.is_listed = true;
        unneeded
    }

    /// All bodies with their lengths.
    pub(super) fn bodies(&self) -> Vec<(Digest, Bytes)> {
        self.objects.iter().map(|(digest, object)| (*digest, object.size)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(life: u64, number: u32) -> Object {
        Object { life, number, size: Bytes(7) }
    }

    #[test]
    fn body_name_contains_hash_life_and_number() {
        let (folder, digest) = (Name::from("site/bodies"), Digest::of(b"a"));
        for object in [object(0, 0), object(1_700_000_000_000_000, 3), object(u64::MAX, u32::MAX)] {
            let name = object.name(&folder, &digest);
            assert!(
                name.as_ref().starts_with(&format!("site/bodies/{}/", &digest.to_string()[..2]))
            );
            assert_eq!(Object::parse(&name, 7), Some((digest, object)));
        }
        let digits = digest.to_string();
        for other in [
            digits.clone(),
            format!("{digits}."),
            format!("{digits}.{}", "0".repeat(23)),
            format!("{digits}.{}g", "0".repeat(23)),
            format!("{}.{}", &digits[1..], "0".repeat(24)),
            format!("{}.{}", digits.to_uppercase(), "0".repeat(24)),
            "lull-origin.json".to_owned(),
        ] {
            assert_eq!(Object::parse(&Name::from(other.as_str()), 7), None, "{other}");
        }
    }

    #[test]
    fn names_are_not_used_again_after_deletion() {
        let (mut catalog, digest) = (Catalog::new(5), Digest::of(b"a"));
        assert!(catalog.list(Vec::new()).is_empty());
        let first = catalog.new_object(Bytes(7));
        assert_eq!(catalog.insert(digest, first), None);
        assert_eq!(catalog.remove(&digest), Some(first));
        let second = catalog.new_object(Bytes(7));
        assert_ne!(first, second);
    }

    #[test]
    fn listing_keeps_the_newest_copy_of_a_needed_body() {
        let mut catalog = Catalog::new(5);
        let [one, two, three] = [b"1", b"2", b"3"].map(|bytes| Digest::of(bytes));
        let stored = catalog.new_object(Bytes(7));
        catalog.insert(two, stored);
        assert_eq!(catalog.remove(&three), None);
        let found = vec![
            (one, object(2, 1)),
            (one, object(3, 1)),
            (one, object(1, 9)),
            (two, object(4, 1)),
            (two, stored),
            (three, object(4, 2)),
        ];
        let unneeded = catalog.list(found);
        let expected =
            [(one, object(2, 1)), (one, object(1, 9)), (two, object(4, 1)), (three, object(4, 2))];
        assert_eq!(unneeded, expected);
        assert_eq!(catalog.bodies().len(), 2);
        assert_eq!((catalog.get(&one), catalog.get(&two)), (Some(object(3, 1)), Some(stored)));
    }
}
