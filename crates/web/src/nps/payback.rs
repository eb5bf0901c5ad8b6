//! Whether prefetching pays at this site: the time that hits save, against the bytes that were sent ahead.
//!
//! The model predicts how much time a prefetch saves on average. Where visitors behave differently, above all where
//! they never come back to a prefetched page, that is wrong for a long time. So the actual hits pay for the bytes.
//! Without hits, prefetches cost a small part of what visitors request.

use std::sync::Mutex;

use super::lock::lock;
use super::settings::MinBenefit;

/// The bytes that may be prefetched before anything is known: some twenty lists of a usual site.
const FIRST: f64 = 2e6;
/// Prefetched bytes without hits, as a part of the bytes that visitors request. An owner accepts a tenth; lists that
/// are on their way when the account is empty need some of it.
const WITHOUT_HITS: f64 = 0.08;
/// The account does not grow beyond this, so that a site whose visitors change is noticed after so many bytes.
const MOST: f64 = 50e6;

/// The seconds that a hit saves: a round trip of a usual path, and the transfer at 10 Mbit/s. The same as for
/// predictions ([`Urls::latency`](lull_speculate::observe::Urls)), without the server's time.
const LATENCY: f64 = 0.1;
const PER_BYTE: f64 = 0.8e-6;
/// Browsers load six parts of a page at a time.
const PARTS_AT_A_TIME: f64 = 6.0;

/// The account of a site, in bytes.
#[derive(Debug)]
pub(super) struct Payback {
    /// The bytes that a saved second is worth: by `--min-benefit`. None if each prefetch is.
    bytes_per_second: Option<f64>,
    account: Mutex<Account>,
}

#[derive(Debug)]
struct Account {
    bytes: f64,
    /// The site's totals at the last look: bytes to visitors, and those of them that were prefetched.
    sent: u64,
    prefetched: u64,
}

impl Payback {
    pub(super) fn new(MinBenefit(seconds_per_megabyte): MinBenefit) -> Self {
        let bytes_per_second =
            (seconds_per_megabyte > 0.0).then(|| 1e6 / f64::from(seconds_per_megabyte));
        let account = Mutex::new(Account { bytes: FIRST, sent: 0, prefetched: 0 });
        Payback { bytes_per_second, account }
    }

    /// A visitor has used a prefetched page of this length.
    pub(super) fn page_used(&self, bytes: u64) {
        self.saved(LATENCY + PER_BYTE * bytes as f64);
    }

    /// A visitor's page has used a prefetched part of this length.
    pub(super) fn part_used(&self, bytes: u64) {
        self.saved((LATENCY + PER_BYTE * bytes as f64) / PARTS_AT_A_TIME);
    }

    fn saved(&self, seconds: f64) {
        if let Some(bytes_per_second) = self.bytes_per_second {
            lock(&self.account).add(seconds * bytes_per_second);
        }
    }

    /// Whether more may be prefetched, by the totals of bytes that were sent to visitors and that were prefetched.
    pub(super) fn is_worth_it(&self, sent: u64, prefetched: u64) -> bool {
        if self.bytes_per_second.is_none() {
            return true;
        }
        let mut account = lock(&self.account);
        let ahead = prefetched.saturating_sub(account.prefetched);
        let demand = sent.saturating_sub(account.sent).saturating_sub(ahead);
        (account.sent, account.prefetched) = (sent, prefetched);
        account.add(WITHOUT_HITS * demand as f64 - ahead as f64);
        account.bytes > 0.0
    }
}

impl Account {
    fn add(&mut self, bytes: f64) {
        self.bytes = (self.bytes + bytes).min(MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Visitors of pages of 20 kB, of whom one in `hits_in` uses a list of 100 kB. Returns what they prefetched, as
    /// a part of what they requested.
    fn prefetched(payback: &Payback, visits: u64, hits_in: Option<u64>) -> f64 {
        let (mut sent, mut ahead) = (0, 0);
        for visit in 1..=visits {
            sent += 20_000;
            if payback.is_worth_it(sent, ahead) {
                (sent, ahead) = (sent + 100_000, ahead + 100_000);
                if hits_in.is_some_and(|hits_in| visit.is_multiple_of(hits_in)) {
                    payback.page_used(10_000);
                }
            }
        }
        ahead as f64 / (sent - ahead) as f64
    }

    #[test]
    fn prefetches_without_hits_are_a_small_part_of_demand() {
        let part = prefetched(&Payback::new(MinBenefit::default()), 10_000, None);
        assert!((0.07..0.1).contains(&part), "{part}");
    }

    #[test]
    fn rare_hits_pay_for_all_lists() {
        // One in twenty lists: a hit of 10 kB saves 0.108 s, which are worth 2.7 MB at 0.04 s per MB.
        let part = prefetched(&Payback::new(MinBenefit::default()), 10_000, Some(20));
        assert!(part > 4.9, "{part}");
        let part = prefetched(&Payback::new(MinBenefit::default()), 10_000, Some(100));
        assert!((0.07..3.0).contains(&part), "{part}");
    }

    #[test]
    fn end_of_hits_is_noticed_after_50_mb() {
        let payback = Payback::new(MinBenefit::default());
        (0..1_000).for_each(|_| payback.page_used(10_000));
        assert!(payback.is_worth_it(60_000_000, 49_000_000));
        assert!(!payback.is_worth_it(62_000_000, 51_000_000));
    }

    #[test]
    fn each_prefetch_is_worth_it_at_a_benefit_of_zero() {
        assert!(Payback::new(MinBenefit(0.0)).is_worth_it(1 << 40, 1 << 40));
    }
}
