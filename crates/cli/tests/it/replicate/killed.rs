//! No promise is broken while origin and replicas are killed.

use std::collections::BTreeMap;
use std::process::Command;
use std::thread;
use std::time::Duration;

use lull_replication::checker::{self, Body, Log, Observation, check};
use lull_testing::{command, fuse, needs};

use super::site::{MountPoint, Site};
use super::support;
use super::workload::{Dice, EndOnDrop, NAMES, Workload};

/// Δ of connected replicas and of others, in seconds.
const DELTAS: [&str; 4] = ["--delta", "1", "--delta-disconnected", "4"];
const BOUND: Duration = Duration::from_secs(4);
const LENGTH: Duration = Duration::from_secs(12);
const SIZES: [usize; 4] = [40, 3_000, 30_000, 150_000];

/// Reads in a mount, as one session. A missing name is not counted: while its replica does not run, the
/// folder below the mount is visible.
fn read_mount(place: &str, workload: &Workload, replica: u64, seed: u64) -> Vec<checker::Read> {
    let (mut dice, mut reads) = (Dice(1_000 + seed), Vec::new());
    while !workload.has_ended() {
        let name = dice.below(NAMES);
        let began = workload.begun.elapsed();
        let output = Command::new("cat").arg(format!("{place}/{name}")).output().unwrap();
        if output.status.success() {
            let body = Observation::Body(Body(workload.number_of(&output.stdout)));
            reads.push(workload.seen(100 + replica, replica, began, (name, body)));
        }
        thread::sleep(Duration::from_millis(dice.below(10)));
    }
    reads
}

#[test]
fn promises_hold_while_each_process_is_killed() {
    judge(false);
}

#[test]
fn promises_hold_in_mounts_while_each_process_is_killed() {
    needs!(fuse(), command("cat"));
    judge(true);
}

const REPLICAS: [&str; 2] = ["paris", "london"];

fn judge(mounted: bool) {
    let common: Vec<&str> =
        DELTAS.iter().chain(&["--blocked", "error", "--patience", "0.3"]).copied().collect();
    let mut site = Site::new(&REPLICAS, &common);
    // Dropped before the site: nothing stays mounted in its folder.
    let names = REPLICAS.iter().filter(|_| mounted);
    let places: BTreeMap<&str, MountPoint> =
        names.map(|name| (*name, MountPoint::new(&site, &format!("{name}-files")))).collect();
    let arguments = |name: &str| -> Vec<&str> {
        let mount = places.get(name).map(|place| ["--mount", &*place.0]);
        common.iter().copied().chain(mount.into_iter().flatten()).collect()
    };
    for name in REPLICAS.iter().filter(|_| mounted) {
        site.replicas.remove(name);
        site.start_replica(name, &arguments(name));
    }
    let workload = &Workload::new(site.addresses.clone(), &REPLICAS, SIZES, BOUND);
    let (commits, acknowledged, reads, kills) = thread::scope(|scope| {
        let ends = EndOnDrop(workload);
        let writing = scope.spawn(|| workload.write());
        let reading: Vec<_> =
            (0..4).map(|session| scope.spawn(move || workload.read(session))).collect();
        let lookers = (0..4_u64).filter_map(|seed| {
            let replica = seed % 2;
            let place = &*places.get(REPLICAS[replica as usize])?.0;
            Some(scope.spawn(move || read_mount(place, workload, replica, seed)))
        });
        let looking: Vec<_> = lookers.collect();
        let (mut dice, mut kills) = (Dice(9), BTreeMap::new());
        while workload.begun.elapsed() + Duration::from_secs(2) < LENGTH {
            thread::sleep(Duration::from_millis(200 + dice.below(600)));
            // A process is killed with -9 when it is dropped.
            let victim = ["paris", "london", "origin"][dice.below(3) as usize];
            *kills.entry(victim).or_insert(0) += 1;
            if victim == "origin" {
                site.origin = None;
                thread::sleep(Duration::from_millis(dice.below(200)));
                site.start_origin();
            } else {
                site.replicas.remove(victim);
                thread::sleep(Duration::from_millis(dice.below(200)));
                site.start_replica(victim, &arguments(victim));
            }
            workload.set_addresses(site.addresses.clone());
        }
        thread::sleep(LENGTH.saturating_sub(workload.begun.elapsed()));
        drop(ends);
        let (commits, acknowledged) = writing.join().unwrap();
        let mut reads: Vec<_> = reading.into_iter().flat_map(|one| one.join().unwrap()).collect();
        let seen: Vec<_> = looking.into_iter().flat_map(|one| one.join().unwrap()).collect();
        assert!(!mounted || seen.len() > 50, "there was something to judge: {}", seen.len());
        println!("{} reads by HTTP, {} in mounts", reads.len(), seen.len());
        reads.extend(seen);
        (commits, acknowledged, reads, kills)
    });
    println!("{} writes, {} reads, kills {kills:?}", acknowledged.len(), reads.len());
    let violations = check(&Log::new(commits.clone()), &acknowledged, &reads);
    assert_eq!(violations, []);
    assert!(acknowledged.len() > 30 && reads.len() > 100, "there was something to judge");
    assert_eq!(kills.len(), 3, "each was killed: {kills:?}");
    // In the end all have everything.
    for name in ["paris", "london"] {
        support::eventually("all of it", || site.status(name)["sequence"] == commits.len() as u64);
    }
}
