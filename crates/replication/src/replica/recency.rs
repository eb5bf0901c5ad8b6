//! Which objects were read least recently: with a quota, their bodies go first.

use std::collections::BTreeMap;

use crate::path::Path;

/// Objects in the order of their last use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Recency {
    by_use: BTreeMap<u64, Path>,
    last_use: BTreeMap<Path, u64>,
    uses: u64,
}

impl Recency {
    /// An object was read, or has become valid.
    pub(super) fn touch(&mut self, path: &Path) {
        self.forget(path);
        self.uses += 1;
        self.by_use.insert(self.uses, path.clone());
        self.last_use.insert(path.clone(), self.uses);
    }

    /// An object has no body here any more.
    pub(super) fn forget(&mut self, path: &Path) {
        if let Some(last) = self.last_use.remove(path) {
            self.by_use.remove(&last);
        }
    }

    /// All objects, the least recently used one first.
    pub(super) fn oldest_first(&self) -> impl Iterator<Item = &Path> {
        self.by_use.values()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn order_is_that_of_the_last_uses(uses in prop::collection::vec((0..8_u8, any::<bool>()), 0..60)) {
            let path = |name: u8| Path::new(&format!("{name}")).expect("a path");
            let (mut recency, mut expected) = (Recency::default(), Vec::new());
            for (name, is_read) in uses {
                expected.retain(|other| *other != path(name));
                if is_read {
                    recency.touch(&path(name));
                    expected.push(path(name));
                } else {
                    recency.forget(&path(name));
                }
                prop_assert!(recency.oldest_first().eq(expected.iter()));
            }
        }
    }
}
