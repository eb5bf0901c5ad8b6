//! A server that waits for its disk, and not for its processor: nginx, with files on a disk that is limited
//! to a number of reads per second.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, fs};

use lull_testing::{Missing, bound, needs};

use super::*;
use crate::common::nginx::Nginx;

/// The kernel's controller for the use of disks.
const CONTROLLER: &str = "/sys/fs/cgroup/blkio";
const READS: &str = "blkio.throttle.read_iops_device";
/// The limit of the disk, in reads per second.
const READS_A_SECOND: u32 = 100;
/// Programs that read from it continuously, each with one read in progress. So the next one has to wait for a
/// quarter of a second.
const READERS: usize = 25;

/// Whether the disk of temporary files can be throttled.
fn throttle() -> Result<(), Missing> {
    if disk(&env::temp_dir()).is_none() {
        return Err(Missing::new("no disk under the folder of temporary files"));
    }
    if Path::new(CONTROLLER).join(READS).exists() {
        Ok(())
    } else {
        Err(Missing::new(format!("no {CONTROLLER}: cgroups of version 1, to slow a disk down")))
    }
}

/// The kernel's name of the disk that a file is on: that of the whole disk for a partition, since the disk is
/// slowed down.
fn disk(file: &Path) -> Option<String> {
    let device = fs::metadata(file).unwrap().dev();
    // As encoded by makedev(3).
    let major = device >> 8 & 0xfff | device >> 32 & !0xfff;
    let minor = device & 0xff | device >> 12 & !0xff;
    let block = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let whole = if block.join("partition").exists() { block.parent()? } else { &block };
    Some(fs::read_to_string(whole.join("dev")).ok()?.trim().to_owned())
}

/// A group of processes that share the disk's limit. It is removed at the end, after its processes have
/// ended.
struct Slowed(PathBuf);

impl Slowed {
    fn start(disk: &str) -> Self {
        let group = Path::new(CONTROLLER).join(format!("lull-test-{}", std::process::id()));
        fs::create_dir(&group).unwrap();
        let slowed = Slowed(group);
        fs::write(slowed.0.join(READS), format!("{disk} {READS_A_SECOND}")).unwrap();
        slowed
    }

    fn take(&self, process: u32) {
        fs::write(self.0.join("cgroup.procs"), process.to_string()).unwrap();
    }
}

impl Drop for Slowed {
    fn drop(&mut self) {
        let begun = Instant::now();
        while fs::remove_dir(&self.0).is_err() && begun.elapsed() < LIMIT {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A process that reads a large file from end to end, past all caches. That takes longer than any test.
struct Reader(Child);

impl Reader {
    fn start(file: &Path, of: &Slowed) -> Self {
        // It does not outlive the test, however that ends.
        let mut command = Command::new("setpriv");
        let input = format!("if={}", file.display());
        command.args([
            "--pdeathsig",
            "KILL",
            "dd",
            &input,
            "of=/dev/null",
            "bs=4k",
            "iflag=direct",
        ]);
        let reader = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        of.take(reader.id());
        Reader(reader)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// For how long a process had a processor.
fn processor_time(process: u32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

#[test]
fn busy_disk_pauses_prefetches() {
    needs!(lull_testing::root(), throttle());
    needs!(lull_testing::command("nginx"), lull_testing::command("setpriv"));
    let slowed = Slowed::start(&disk(&env::temp_dir()).unwrap());
    // Each answer is read from the disk itself, as far as it fills buffers.
    let nginx = Nginx::start("default_type text/html;", "directio 512; output_buffers 1 4k;");
    for name in ["a", "b", "probe"] {
        nginx.put(name, format!("{PAGE}{}", " ".repeat(8192 - PAGE.len())));
    }
    nginx.put("large", vec![7; 16 << 20]);
    slowed.take(nginx.pid());
    let site = site_before(nginx.address, learning(), |settings, save| {
        Nps::new(settings, empty_model(), Some(save))
    });
    site.go(1..25, &["/a", "/b"]);
    site.list(99, "/a", &[]);

    let readers: Vec<_> =
        (0..READERS).map(|_| Reader::start(&nginx.folder().join("large"), &slowed)).collect();
    let (begun, before) = (Instant::now(), processor_time(nginx.pid()));
    site.until_there_is_none();
    let share =
        (processor_time(nginx.pid()) - before).as_secs_f64() / begun.elapsed().as_secs_f64();
    assert!(share < 0.05, "nginx had a processor for {share} of the time");

    drop(readers);
    // Other programs on a busy machine make the server late as well.
    if bound(false, true) {
        site.hints(98, "/a", &[]);
    }
}
