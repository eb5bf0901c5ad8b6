//! Properties of downloads that share a path, for any behaviour of the network.

use lull_cc::Timestamp;
use lull_cc::receive::{Arrival, Download, Downloads};
use lull_testing::trace::seed;

const EVENTS: usize = 50_000;

/// Pseudo-random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

/// The next arrival after one of the same connection. A wild one has impossible values.
fn arrival(random: &mut Random, now: u64, last: &Arrival, is_wild: bool) -> Arrival {
    let limit = if is_wild { u64::from(u32::MAX) } else { 100 };
    let echo = (now.saturating_sub(20_000 + random.below(40_000)) / 1000) as u32;
    Arrival {
        now: Timestamp::from_micros(now),
        packets: last.packets.wrapping_add(random.below(if is_wild { limit } else { 4 }) as u32),
        echo: (random.below(4) > 0).then_some(echo),
        clock: (now / 1000) as u32,
        advertised: random.below(limit) as u32,
        granted: random.below(limit) as u32,
        blocks: random.below(20).saturating_sub(17) as u32,
    }
}

#[test]
fn any_history_of_downloads_keeps_its_bounds() {
    for run in 0..16 {
        let is_wild = run % 2 == 1;
        let mut random = Random(seed().wrapping_add(run));
        let mut path = Downloads::default();
        let mut downloads: Vec<(Download, Arrival)> =
            (0..8).map(|_| (Download::join(&mut path, 10), Arrival::default())).collect();
        let mut now = 0;
        for _ in 0..EVENTS {
            now += random.below(2_000);
            let chosen = random.below(8) as usize;
            let (download, last) = &mut downloads[chosen];
            if random.below(500) == 0 {
                download.leave(&mut path);
                (*download, *last) = (Download::join(&mut path, 10), Arrival::default());
            }
            *last = arrival(&mut random, now, last, is_wild);
            if let Some(echo) = last.echo {
                download.handle_echo(last.now, echo);
            }
            download.handle_arrival(&mut path, last);
            let window = path.path().window().packets();
            let part = u64::from(download.part());
            // What others do not use, at most a second window. A lone one has nothing from others.
            let bound = if path.active() > 1 { 2 * window } else { window };
            assert!(part <= bound.max(2), "{part} of {window}");
            assert!(path.active() <= 8 && path.path().members() == 8);
            let is_lonely_pair = part == 0 || part == 2;
            assert!(!path.path().is_at_floor() || is_lonely_pair, "{part} at the floor");
        }
        downloads.iter_mut().for_each(|(download, _)| download.leave(&mut path));
        assert_eq!((path.active(), path.in_flight(), path.spare()), (0, 0, 0));
    }
}
