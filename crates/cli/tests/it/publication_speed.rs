//! The time of files from `lull publish` to a running replica, and their cost for it. `rsync -a` transfers
//! the same files in the same run for comparison.
//!
//! `LULL_PUBLICATION_FILES` lists the numbers of files. The default is 250 and 4,000, and 1,000 to 1,000,000
//! in `make test-full`. Times are printed. Only the growth of the replica's processor time is judged: it does
//! not depend on the speed of the machine.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::site::Site;
use crate::support::{finish_within, lull};
use lull_testing::{bound, command, needs};

/// Bytes of each file.
const SIZE: usize = 4_096;
/// For a million files.
const LIMIT: Duration = Duration::from_secs(3_600);
/// The exponent of a cost like n is 1, of one like n² 2.
const STEEPEST: (f64, f64) = (1.5, 1.1);
const FILES: (&str, &str) = ("250,4000", "1000,10000,100000,1000000");

/// Processor seconds of a process.
fn processor(pid: &str) -> f64 {
    /// Ticks of `/proc` per second, on all architectures of Linux.
    const TICKS: f64 = 100.0;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, behind) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = behind.split_whitespace().collect();
    // utime and stime: the 14th and the 15th of proc(5).
    let ticks = |at: usize| fields[at].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / TICKS
}

/// This many new files, a thousand in a folder.
fn make(folder: &Path, files: usize) {
    for file in 0..files {
        let within = folder.join((file / 1_000).to_string());
        if file % 1_000 == 0 {
            fs::create_dir_all(&within).unwrap();
        }
        let mut bytes = format!("{file} of {files} ").into_bytes();
        bytes.resize(SIZE, b'.');
        fs::write(within.join(file.to_string()), bytes).unwrap();
    }
}

#[test]
fn replica_cost_of_a_publication_grows_with_its_files() {
    needs!(command("rsync"));
    let list = std::env::var("LULL_PUBLICATION_FILES");
    let list = list.unwrap_or_else(|_| bound(FILES.0, FILES.1).to_owned());
    let site = Site::new(&["paris"], &[]);
    let replica = site.replicas["paris"].pid();
    let mut points = Vec::new();
    println!(
        "{:>9} {:>10} {:>10} {:>8} {:>12}",
        "files", "lull, s", "rsync, s", "times", "replica, s"
    );
    for files in list.split(',').map(|text| text.parse::<usize>().unwrap()) {
        let source = site.folder.path().join(format!("source-{files}"));
        make(&source, files);
        let before = processor(&replica);
        let begun = Instant::now();
        let (from, into) = (source.to_str().unwrap(), format!("of-{files}"));
        let publish = ["publish", from, "--origin", &site.path("origin"), "--into", &into];
        finish_within(lull(&publish).args(["--wait", "paris"]), LIMIT).ok();
        let took = begun.elapsed().as_secs_f64();
        let spent = processor(&replica) - before;
        let copy = site.folder.path().join(format!("copy-{files}"));
        let begun = Instant::now();
        finish_within(Command::new("rsync").arg("-a").arg(&source).arg(&copy), LIMIT).ok();
        let rsync = begun.elapsed().as_secs_f64();
        let times = took / rsync;
        println!("{files:>9} {took:>10.2} {rsync:>10.2} {times:>8.1} {spent:>12.2}");
        // A tick is a hundredth of a second.
        points.push((files as f64, spent.max(0.01)));
        fs::remove_dir_all(copy).unwrap();
    }
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
    let exponent = (last.1 / first.1).ln() / (last.0 / first.0).ln();
    println!("the replica's processor time grows with files to the power of {exponent:.2}");
    assert!(exponent < bound(STEEPEST.0, STEEPEST.1), "{points:?}");
}
