//! `lull origin` and `lull replica` on separate machines: with wrong clocks, on a silently cut line, and on a
//! slow one.

use std::fs;
use std::time::{Duration, Instant};

use crate::site::Site;
use crate::support::{eventually, eventually_within};
use lull_cc::Rate;
use lull_emulator::{Emulator, Link, LinkRate, Topology};
use lull_testing::{needs, root};
use serde_json::Value;

/// A machine for the origin and one for `paris`, with a line of this many bits per second between them.
fn line(bits_per_second: u64) -> Emulator {
    let rate = LinkRate::Fixed(Rate::from_bits_per_second(bits_per_second));
    let link = Link { rate, delay: Duration::from_millis(10), ..Link::default() };
    // Nothing is measured: the daemons get the processors.
    Emulator::start(&Topology { urgent: false, ..Topology::symmetric(link) }).unwrap()
}

fn site(emulator: &Emulator, arguments: &[&str], of_origin: &[&str]) -> Site {
    let (origin, paris) = (emulator.left(0).clone(), emulator.right(0).clone());
    Site::among([("origin", origin), ("paris", paris)].into(), &["paris"], arguments, of_origin)
}

const DELTA: Duration = Duration::from_secs(2);

/// Whether bounds, of seconds, are close around a value.
fn are_around(bounds: &Value, value: i64) -> bool {
    let [least, most] = [0, 1].map(|at| bounds[at].as_f64());
    let (Some(least), Some(most)) = (least, most) else { return false };
    least <= value as f64 && value as f64 <= most && most - least < 0.5
}

#[test]
fn clock_difference_is_reported_and_staleness_bounded() {
    needs!(root());
    for ahead in [-3, 3] {
        let emulator = line(50_000_000);
        let folder = tempfile::tempdir().unwrap();
        let clock = folder.path().join("clock");
        // Nanoseconds ahead, and a correct rate.
        let said = [(ahead * 1_000_000_000_i64).to_le_bytes(), 0_i64.to_le_bytes()].concat();
        fs::write(&clock, said).unwrap();
        let site = site(
            &emulator,
            &[
                "--lab-clock",
                clock.to_str().unwrap(),
                "--max-skew",
                "0.5",
                "--delta",
                "2",
                "--delta-disconnected",
                "2",
                "--blocked",
                "error",
                "--patience",
                "0.1",
            ],
            &[],
        );
        assert_eq!(site.put("/a", b"old").status, 200);
        eventually("the first", || site.get("paris", "/a").body == b"old");
        eventually("it is reported", || !site.told("paris", "skew").is_empty());
        eventually("how far", || are_around(&site.status("paris")["skew_seconds"], ahead));
        eventually("at the origin, too", || {
            are_around(&site.status("origin")["replicas"][0]["skew_seconds"], ahead)
        });
        // The cut is silent, and the lease would last for three seconds more or less if it was counted by
        // these clocks.
        emulator.set_cut(emulator.right(0), true).unwrap();
        let cut = Instant::now();
        // Before a request waits for the origin's disk.
        let first = site.get("paris", "/a").status;
        let mut while_it_may = u32::from(first == 200 && cut.elapsed() < DELTA / 2);
        assert_eq!(site.put("/a", b"new").status, 200);
        let acknowledged = Instant::now();
        while acknowledged.elapsed() < 3 * DELTA {
            let (began, answer) = (acknowledged.elapsed(), site.get("paris", "/a"));
            match answer.status {
                200 => assert!(began < DELTA, "{ahead}: an old answer after {began:?}"),
                503 => {}
                _ => panic!("{answer:?}"),
            }
            // A ping is sent every half second, so one was answered that recently.
            while_it_may += u32::from(answer.status == 200 && cut.elapsed() < DELTA / 2);
        }
        assert!(while_it_may > 0, "{ahead}: it answers for as long as it can promise anything");
        emulator.set_cut(emulator.right(0), false).unwrap();
        let newer = || site.get("paris", "/a").body == b"new";
        eventually_within(Duration::from_secs(60), "the new one", newer);
        let told = site.told("paris", "skew");
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("the wall clocks of origin and replica are over "), "{told:?}");
    }
}

#[test]
fn demand_read_overtakes_a_large_push() {
    needs!(root());
    const LARGE: usize = 8_000_000;
    // The large one takes at least eight seconds.
    let emulator = line(8_000_000);
    let site = site(&emulator, &[], &[]);
    let paris = |what: &str| site.status("paris")[what].as_u64().unwrap();
    let large: Vec<u8> = (0..LARGE / 8).flat_map(|at| (at as u64).to_le_bytes()).collect();
    assert_eq!(site.put("/large", &large).status, 200);
    let under_way = || paris("speculative_bytes") > 500_000;
    eventually_within(Duration::from_secs(120), "it is under way", under_way);
    let small = vec![b'.'; 60_000];
    let put = site.put("/small", &small);
    let seen = format!("Lull-Session: {}\r\n", put.header("lull-session").unwrap());
    let answer = site.ask("paris", "GET", "/small", &seen, b"");
    let came = paris("speculative_bytes");
    assert!(answer.status == 200 && answer.body == small, "{}", answer.head);
    assert!(came < 7_000_000, "{came} bytes of the large one are here already");
    assert_eq!(paris("valid_objects"), 1, "the large one is still on its way");
    let all_is_here = || paris("valid_objects") == 2;
    eventually_within(Duration::from_secs(60), "the large one", all_is_here);
    assert!(site.get("paris", "/large").body == large);
    // It continued where it was, and came once.
    assert_eq!((paris("demands"), paris("demand_bytes")), (1, 60_000));
    assert!(paris("speculative_bytes") < 8_100_000);
}
