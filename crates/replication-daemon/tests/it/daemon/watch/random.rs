//! The origin eventually equals the folder, after any operations there.
//!
//! `LULL_SEED=N` repeats a run, as far as the machine permits.

use std::fs::{self, File, Permissions};
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use lull_replication_daemon::watch::WatchOptions;
use lull_sim::random::Random;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, RenameFlags, renameat2};
use nix::unistd::{linkat, truncate};

use super::super::site::runtime;
use super::super::sys::Mapping;
use super::{LIMIT, Watching, found};

/// Operations of a run: about three seconds.
const OPERATIONS: u32 = 400;
/// Names of files and of folders, in each folder.
const NAMES: u64 = 5;
const FOLDERS: [&str; 5] = ["", "d", "d/e", "f", "g"];
const MAX_FRAME_BYTES: u64 = 40_000;

/// Makes changes in a folder.
struct Driver {
    random: Random,
    root: PathBuf,
    outside: PathBuf,
    /// Only changes with events.
    told: bool,
    open: Vec<File>,
    mapped: Vec<Mapping>,
    done: Vec<String>,
}

impl Driver {
    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn folder(&mut self) -> PathBuf {
        let number = self.below(FOLDERS.len() as u64) as usize;
        self.root.join(FOLDERS[number])
    }

    fn name(&mut self) -> PathBuf {
        let number = self.below(NAMES);
        self.folder().join(format!("file-{number}"))
    }

    fn bytes(&mut self) -> Vec<u8> {
        let (length, seed) = (self.below(MAX_FRAME_BYTES), self.random.bits() as u8);
        (0..length).map(|at| (at / 251) as u8 ^ seed).collect()
    }

    fn length(&mut self) -> i64 {
        self.below(MAX_FRAME_BYTES) as i64
    }

    /// Makes a change. It may fail, because there is no such file, or another entry is there.
    fn act(&mut self) {
        let operations = if self.told { 22 } else { 24 };
        let operation = self.below(operations);
        let name = self.name();
        self.done.push(format!("{operation} {}", name.display()));
        let _ = self.operation(operation, name);
    }

    fn operation(&mut self, operation: u64, name: PathBuf) -> std::io::Result<()> {
        match operation {
            0 | 1 => fs::write(&name, self.bytes())?,
            2 => {
                let bytes = self.bytes();
                File::options().append(true).open(&name)?.write_all(&bytes)?;
            }
            3 => truncate(&name, self.length())?,
            4 => File::options().write(true).open(&name)?.set_len(self.length() as u64)?,
            5 | 6 => fs::rename(&name, self.name())?,
            7 => fs::hard_link(&name, self.name())?,
            8 => fs::remove_file(&name)?,
            9 => self.link(&name)?,
            10 => {
                let mode = 0o400 | self.below(0o1000) as u32;
                fs::set_permissions(&name, Permissions::from_mode(mode))?;
            }
            11 if self.below(2) == 0 => {
                let mode = 0o700 | self.below(0o100) as u32;
                fs::set_permissions(self.folder(), Permissions::from_mode(mode))?;
            }
            11 => {
                let second = Duration::from_nanos(self.below(2_000_000_000_000_000_000));
                let time = UNIX_EPOCH - Duration::from_secs(1_000_000_000) + second;
                File::open(&name)?.set_modified(time)?;
            }
            12 => {
                let new = self.outside.join("new");
                fs::write(&new, self.bytes())?;
                fs::rename(new, &name)?;
            }
            13 => {
                let here = name.with_extension("new");
                fs::write(&here, self.bytes())?;
                fs::rename(here, &name)?;
            }
            14 => drop(fs::create_dir_all(self.folder())),
            15 => fs::remove_dir(self.folder())?,
            16 => fs::rename(self.folder(), self.folder())?,
            17 => {
                let mut file =
                    File::options().write(true).create(true).truncate(false).open(&name)?;
                file.set_len(1 << 20)?;
                file.seek(SeekFrom::Start(1 << 19))?;
                file.write_all(b"in the middle of nothing")?;
            }
            18 => {
                let flags = OFlag::O_TMPFILE.bits();
                let mut file = File::options().write(true).custom_flags(flags).open(&self.root)?;
                file.write_all(b"without a name before")?;
                let from = format!("/proc/self/fd/{}", file.as_raw_fd());
                let follow = AtFlags::AT_SYMLINK_FOLLOW;
                linkat(AT_FDCWD, &*from, AT_FDCWD, &name, follow)?;
            }
            19 => {
                let (other, exchange) = (self.name(), RenameFlags::RENAME_EXCHANGE);
                renameat2(AT_FDCWD, &name, AT_FDCWD, &other, exchange)?;
            }
            20 => {
                // It stays open.
                let mut file = File::options().append(true).create(true).open(&name)?;
                file.write_all(&self.bytes())?;
                self.open.push(file);
            }
            21 => {
                let bytes = self.bytes();
                if let Some(file) = self.open.last_mut() {
                    file.write_all(&bytes)?;
                }
                if self.open.len() > 3 {
                    self.open.remove(0);
                }
            }
            22 => {
                let file = File::options().read(true).write(true).open(&name)?;
                self.mapped.push(Mapping::new(file, MAX_FRAME_BYTES as usize)?);
            }
            _ => {
                let (at, byte) = (self.below(MAX_FRAME_BYTES) as usize, self.random.bits() as u8);
                if let Some(mapping) = self.mapped.last_mut() {
                    mapping.write(at, byte);
                }
                if self.mapped.len() > 3 {
                    self.mapped.remove(0);
                }
            }
        }
        Ok(())
    }

    /// A link to a file, which may not exist, or to something outside.
    fn link(&mut self, name: &PathBuf) -> std::io::Result<()> {
        let target = match self.below(4) {
            0 => PathBuf::from(format!("file-{}", self.below(NAMES))),
            1 => PathBuf::from(format!("../file-{}", self.below(NAMES))),
            2 => self.name(),
            _ => PathBuf::from("/etc/hostname"),
        };
        symlink(target, name)
    }

    fn pause(&mut self) {
        let wait = match self.below(20) {
            0 => 80,
            1..6 => 10,
            _ => 0,
        };
        thread::sleep(Duration::from_millis(wait));
    }
}

fn seed() -> u64 {
    let given = std::env::var("LULL_SEED").ok();
    let given = given.map(|seed| seed.parse().expect("LULL_SEED is a number"));
    given.unwrap_or_else(|| {
        let now = UNIX_EPOCH.elapsed().expect("it is later than 1970");
        now.as_nanos() as u64
    })
}

async fn run(options: WatchOptions, told: bool) {
    let seed = seed();
    println!("LULL_SEED={seed}");
    let watching = Watching::with(options, &[("d/e/file-0", b"0"), ("file-0", b"1")]).await;
    let outside = watching.site.folder().join("outside");
    fs::create_dir(&outside).expect("a folder");
    let root = watching.folder.canonicalize().expect("it is there");
    let mut driver = Driver {
        random: Random::new(seed),
        root: root.clone(),
        outside,
        told,
        open: Vec::new(),
        mapped: Vec::new(),
        done: Vec::new(),
    };
    for _ in 0..OPERATIONS {
        driver.act();
        driver.pause();
    }
    let ended = std::time::Instant::now();
    loop {
        let (published, folder) = (watching.everything(), found(&root).ok());
        if Some(&published) == folder.as_ref() {
            break;
        }
        if ended.elapsed() > LIMIT {
            let folder = folder.unwrap_or_default();
            let differs = |name: &&String| published.get(*name) != folder.get(*name);
            let names = published.keys().chain(folder.keys());
            let differing: std::collections::BTreeSet<_> = names.filter(differs).collect();
            for name in &differing {
                println!(
                    "{name}: published {:?}, folder {:?}",
                    published.get(*name),
                    folder.get(*name)
                );
            }
            let done = driver.done.iter();
            let done = done.filter(|one| differing.iter().any(|name| one.ends_with(&***name)));
            println!("{}", done.cloned().collect::<Vec<_>>().join("\n"));
            panic!("LULL_SEED={seed}: {differing:?} differ");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("equal {:?} after the last operation", ended.elapsed());
    drop(driver);
    watching.close().await;
}

#[test]
fn origin_has_the_folder_after_random_operations() {
    let quiet = Duration::from_millis(300);
    let options = WatchOptions { quiet, compare: Duration::from_millis(500) };
    runtime().block_on(run(options, false));
}

/// Without the comparison: the kernel reports all changes except writes to mappings.
#[test]
fn origin_has_the_folder_without_a_comparison() {
    let quiet = Duration::from_millis(300);
    let options = WatchOptions { quiet, compare: Duration::from_secs(3_600) };
    runtime().block_on(run(options, true));
}
