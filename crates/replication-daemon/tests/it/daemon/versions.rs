//! New versions of large files, which cost their changed chunks only.

use lull_replication::types::Digest;

use super::site::{Site, runtime};

const MEGABYTE: usize = 1_000_000;

/// Bytes that do not repeat.
pub(super) fn noise(seed: u64, size: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = vec![0; size];
    for word in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
    bytes
}

/// A version with one percent of changes at three places: bytes are replaced, inserted and deleted.
pub(super) fn changed(old: &[u8]) -> Vec<u8> {
    let (part, all) = (old.len() / 300, old.len());
    let mut new = old.to_vec();
    new[all / 4..all / 4 + part].copy_from_slice(&noise(7, part));
    new.splice(all / 2..all / 2, noise(8, part));
    new.drain(all * 3 / 4..all * 3 / 4 + part);
    new
}

/// The bytes that the origin has sent on all channels.
fn sent(site: &Site) -> u64 {
    let one = &site.origin().status().replicas[0];
    one.control_bytes + one.demand_bytes + one.speculative_bytes
}

#[test]
fn new_version_costs_its_changed_chunks() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        let old = noise(1, 32 * MEGABYTE);
        let at = site.write(&[("image", Some(&old))]).await;
        site.reach(at).await;
        let before = sent(&site);
        assert!(before > old.len() as u64, "{before}");
        let new = changed(&old);
        let at = site.write(&[("image", Some(&new))]).await;
        site.reach(at).await;
        let cost = sent(&site) - before;
        let read = site.read(0, "image").await.expect("it is there");
        assert_eq!(Digest::of(&read), Digest::of(&new));
        println!("{cost} bytes for a new version of {}", new.len());
        assert!(cost <= new.len() as u64 * 3 / 100, "{cost} bytes");
        let status = site.replica(0).status();
        assert_eq!(status.demands, 0, "nothing came again");
        site.stop().await;
    });
}

/// The old name is deleted in the same transaction, among others.
#[test]
fn renamed_and_changed_file_costs_its_changed_chunks() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        let (old, other) = (noise(1, 32 * MEGABYTE), noise(2, 16 * MEGABYTE));
        let at = site.write(&[("a/image", Some(&old)), ("a/other", Some(&other))]).await;
        site.reach(at).await;
        let before = sent(&site);
        let new = changed(&old);
        let changes = [("b/image", Some(&new)), ("a/image", None), ("a/other", None)];
        let changes = changes.map(|(name, body)| (name, body.map(Vec::as_slice)));
        let at = site.write(&changes).await;
        site.reach(at).await;
        let cost = sent(&site) - before;
        let read = site.read(0, "b/image").await.expect("it is there");
        assert_eq!(Digest::of(&read), Digest::of(&new));
        assert!(cost <= new.len() as u64 * 3 / 100, "{cost} bytes");
        site.stop().await;
    });
}

#[test]
fn version_without_common_chunks_comes_as_a_whole() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        for seed in [1, 2] {
            let bytes = noise(seed, 6 * MEGABYTE);
            let before = sent(&site);
            let at = site.write(&[("image", Some(&bytes))]).await;
            site.reach(at).await;
            assert_eq!(site.read(0, "image").await.as_ref(), Some(&bytes));
            let cost = sent(&site) - before;
            let size = bytes.len() as u64;
            assert!((size..size + size / 50).contains(&cost), "{cost} bytes");
        }
        site.stop().await;
    });
}
