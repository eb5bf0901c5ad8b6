//! Bars for other proxies of the site. They name no URL: proxies with the same key compute the same hashes.

use std::time::{Duration, SystemTime};

use lull_cc::Timestamp;

use super::Policy;
use super::bars::SharedBar;

/// A hash, an offence, and the second from 1970 until which the URL is barred.
const ENTRY: usize = 8 + 1 + 8;

impl Policy {
    /// From now on bars are remembered for other proxies with this key.
    pub fn share_bars(&mut self, key: [u8; 16]) {
        self.bars.share(key);
    }

    /// The bars since the last call, for other proxies; none if there are none. A bar that only one client has
    /// met is not among them.
    pub fn take_new_bars(&mut self, now: Timestamp, wall: SystemTime) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        for bar in self.bars.take_unsent() {
            let until = wall + bar.until.saturating_since(now);
            let until = until.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            bytes.extend(bar.hash.to_le_bytes());
            bytes.push(bar.offence);
            bytes.extend(until.as_secs().to_le_bytes());
        }
        Some(bytes).filter(|bytes| !bytes.is_empty())
    }

    /// Adds the bars of another proxy. Returns false if they are malformed.
    pub fn add_bars(&mut self, bytes: &[u8], now: Timestamp, wall: SystemTime) -> bool {
        let wall = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let entries = bytes.chunks_exact(ENTRY);
        let is_whole = entries.remainder().is_empty();
        for entry in entries {
            let Some((hash, rest)) = entry.split_first_chunk::<8>() else { return false };
            let Some((offence, until)) = rest.split_first() else { return false };
            let Ok(until) = <[u8; 8]>::try_from(until) else { return false };
            let left = Duration::from_secs(u64::from_le_bytes(until)).saturating_sub(wall);
            let until = now + left.min(super::BARRED_FOR);
            let hash = u64::from_le_bytes(*hash);
            self.bars.merge(SharedBar { hash, offence: *offence, until }, now);
        }
        is_whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Offence;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_nanos(second * 1_000_000_000)
    }

    fn proxy(key: u8) -> Policy {
        let mut policy = Policy::default();
        policy.share_bars([key; 16]);
        policy
    }

    fn is_barred(policy: &Policy, url: &str, second: u64) -> bool {
        let target = super::super::target::Target::parse(url).unwrap();
        policy.bars.check(&target, at(second)).is_some()
    }

    #[test]
    fn bar_of_one_proxy_holds_at_another_for_a_day() {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let (mut one, mut other, mut foreign) = (proxy(1), proxy(1), proxy(2));
        one.bar("/account", Offence::NotPublic, at(100));
        let bytes = one.take_new_bars(at(100), wall).unwrap();
        // The other proxy has run for longer, and the message takes ten minutes.
        let later = wall + Duration::from_secs(600);
        assert!(other.add_bars(&bytes, at(5_600), later) && foreign.add_bars(&bytes, at(0), later));
        assert!(is_barred(&other, "/account", 5_600 + 86_400 - 601));
        assert!(!is_barred(&other, "/account", 5_600 + 86_400 - 599));
        assert!(!is_barred(&foreign, "/account", 10));
        assert_eq!(other.take_new_bars(at(5_600), later), None, "it is not its own");
        // Once an hour is enough.
        one.bar("/account", Offence::NotPublic, at(200));
        assert_eq!(one.take_new_bars(at(200), wall), None);
        one.bar("/account", Offence::NotPublic, at(3_800));
        assert!(one.take_new_bars(at(3_800), wall).is_some());
        assert!(!other.add_bars(&bytes[1..], at(5_600), later));
    }

    #[test]
    fn saved_bars_with_another_key_are_dropped() {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let mut before = proxy(1);
        before.bar("/account", Offence::NotPublic, at(100));
        let saved = before.encode_bars(at(100), wall);
        for (key, is_kept) in [(1, true), (2, false)] {
            let mut again = proxy(key);
            assert!(again.take_bars(&saved, at(0), wall));
            assert_eq!(is_barred(&again, "/account", 10), is_kept);
            again.bar("/new", Offence::Gone, at(20));
            assert!(again.take_new_bars(at(20), wall).is_some());
        }
    }
}
