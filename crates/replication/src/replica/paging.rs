//! How pages are made from a state.

use core::ops::Bound;

use super::page::{Page, PageItem, PageRequest, above};
use super::view::View;
use crate::types::Kind;

/// Objects that are looked at for one page, at most, for each item: other reads wait meanwhile. A page of a tree with
/// many links and folders may so be short.
const LOOKED_AT: usize = 4;

/// Which of two beginnings is later.
fn later(from: Bound<Vec<u8>>, prefix: &[u8]) -> Bound<Vec<u8>> {
    match &from {
        Bound::Included(bytes) | Bound::Excluded(bytes) if &**bytes >= prefix => from,
        _ => Bound::Included(prefix.to_vec()),
    }
}

impl View<'_> {
    /// A page of the state.
    pub(super) fn page(&self, request: &PageRequest) -> Page {
        let PageRequest { prefix, delimiter, limit, .. } = request;
        let mut from = later(request.from.clone(), prefix);
        let mut items = Vec::new();
        let mut left = limit.saturating_mul(LOOKED_AT).max(1);
        loop {
            let next = self.next(from.as_ref().map(Vec::as_slice));
            let Some((path, version)) =
                next.filter(|(path, _)| path.as_bytes().starts_with(prefix))
            else {
                return Page { items, next: None };
            };
            if items.len() >= *limit || left == 0 {
                return Page { items, next: Some(from) };
            }
            left -= 1;
            let name = path.as_bytes();
            from = Bound::Excluded(name.to_vec());
            if version.content.metadata.kind != Kind::File {
                continue;
            }
            let rest = &name[prefix.len()..];
            let cut = find(rest, delimiter).map(|at| prefix.len() + at + delimiter.len());
            let Some(cut) = cut else {
                items.push(PageItem::File(path.clone(), version));
                continue;
            };
            items.push(PageItem::Prefix(name[..cut].to_vec()));
            match above(&name[..cut]) {
                Some(above) => from = Bound::Included(above),
                None => return Page { items, next: None },
            }
        }
    }
}

/// Where `wanted` first is; none if it is empty.
fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    if wanted.is_empty() {
        return None;
    }
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use lull_cc::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::path::Path;
    use crate::replica::Object;
    use crate::types::{Content, Digest, Metadata, Sequence, Version};

    fn object(kind: Kind) -> Object {
        let metadata = Metadata { kind, ..Metadata::default() };
        let content = Content { digest: Digest::default(), size: Bytes(0), metadata };
        Object { version: Version { sequence: Sequence(1), content }, valid: true }
    }

    /// All names of a listing, by pages of `limit`.
    fn listed(
        objects: &BTreeMap<Path, Object>,
        prefix: &[u8],
        delimiter: &[u8],
        from: Bound<Vec<u8>>,
        limit: usize,
    ) -> Vec<Vec<u8>> {
        let view = View::present(objects, None);
        let (mut names, mut next) = (Vec::new(), Some(from));
        while let Some(from) = next {
            let (prefix, delimiter) = (prefix.to_vec(), delimiter.to_vec());
            let page = view.page(&PageRequest { prefix, delimiter, from, limit });
            assert!(page.items.len() <= limit);
            names.extend(page.items.into_iter().map(|item| match item {
                PageItem::File(path, _) => path.as_bytes().to_vec(),
                PageItem::Prefix(prefix) => prefix,
            }));
            next = page.next;
        }
        names
    }

    fn name() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop::sample::select(&b"ab/\xff"[..]);
        prop::collection::vec(byte, 1..6)
    }

    proptest! {
        #[test]
        fn pages_have_each_name_once_and_in_order(
            names in prop::collection::vec((name(), 0..4u8), 0..20),
            prefix in prop::collection::vec(prop::sample::select(&b"ab/\xff"[..]), 0..3),
            delimiter in prop::sample::select(vec![&b""[..], b"/", b"b", b"\xff"]),
            after in name(),
            limit in 1..5usize,
        ) {
            let kind = |number| match number { 0 => Kind::Link, 1 => Kind::Folder, _ => Kind::File };
            let objects: BTreeMap<Path, Object> = names
                .iter()
                .filter_map(|(name, number)| Some((Path::from_bytes(name).ok()?, object(kind(*number)))))
                .collect();
            let expected: BTreeSet<Vec<u8>> = objects
                .iter()
                .filter(|(path, object)| {
                    object.version.content.metadata.kind == Kind::File
                        && path.as_bytes().starts_with(&prefix)
                        && path.as_bytes() > &after[..]
                })
                .map(|(path, _)| {
                    let name = path.as_bytes();
                    let cut = find(&name[prefix.len()..], delimiter);
                    name[..cut.map_or(name.len(), |at| prefix.len() + at + delimiter.len())].to_vec()
                })
                .collect();
            let names = listed(&objects, &prefix, delimiter, Bound::Excluded(after), limit);
            prop_assert_eq!(names, expected.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn page_of_many_links_ends_early() {
        let links = (0..100).map(|number| Path::new(&format!("a{number:03}")).unwrap());
        let mut objects: BTreeMap<_, _> = links.map(|path| (path, object(Kind::Link))).collect();
        objects.insert(Path::new("b").unwrap(), object(Kind::File));
        let (prefix, delimiter, from) = (Vec::new(), Vec::new(), Bound::Unbounded);
        let request = PageRequest { prefix, delimiter, from, limit: 2 };
        let page = View::present(&objects, None).page(&request);
        assert!(page.items.is_empty() && page.next.is_some(), "{page:?}");
        assert_eq!(listed(&objects, b"", b"", Bound::Unbounded, 2), [b"b"]);
    }
}
