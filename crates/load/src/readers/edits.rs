//! Random edits, and their readers.

use std::time::Duration;

use lull_sim::random::Random;

use super::{File, Load, Read, Write};

/// Edits of files, and reads that look for them.
#[derive(Clone, Copy, Debug)]
pub struct Edits {
    /// Number of files. All are equally likely to be edited.
    pub files: usize,
    /// Bytes of the smallest and of the largest; the sizes of the others form a geometric sequence between
    /// them.
    pub bytes: (usize, usize),
    /// Edits per second, on average, at random times (a Poisson process).
    pub per_second: f64,
    /// For how long.
    pub length: Duration,
    /// Reads per second, evenly. Each file is read once before any is read again.
    pub reads: f64,
    /// How long reads continue after the last edit.
    pub tail: Duration,
    /// The seed of random draws.
    pub seed: u64,
}

impl Edits {
    /// The reads and writes.
    pub fn draw(&self) -> Load {
        let files = (0..self.files).map(|number| self.file(number)).collect();
        // Separately: reads do not change the writes.
        let [mut writing, mut reading] = [0, 1].map(|part| Random::of_part(self.seed, part));
        let mut writes = Vec::new();
        let mean = Duration::from_secs_f64(1.0 / self.per_second);
        let mut at = writing.exponential(mean);
        while at < self.length {
            writes.push(Write { at, file: writing.below(self.files as u64) as usize });
            at += writing.exponential(mean);
        }
        let count = ((self.length + self.tail).as_secs_f64() * self.reads) as usize;
        let mut order: Vec<usize> = Vec::new();
        let mut reads = Vec::with_capacity(count);
        for number in 0..count {
            if order.is_empty() {
                order = shuffled(self.files, &mut reading);
            }
            let at = Duration::from_secs_f64(number as f64 / self.reads);
            reads.extend(order.pop().map(|file| Read { at, replica: 0, file }));
        }
        Load { files, reads, writes }
    }

    fn file(&self, number: usize) -> File {
        let (smallest, largest) = self.bytes;
        let part = number as f64 / self.files.saturating_sub(1).max(1) as f64;
        let bytes = smallest as f64 * (largest as f64 / smallest as f64).powf(part);
        // Names do not depend on lengths: a program with an alphabetical order meets the lengths at random.
        File { name: format!("{:03}.txt", number * 7_919 % 1_000), bytes: bytes.round() as usize }
    }
}

/// All numbers below `count` (Fisher and Yates).
fn shuffled(count: usize, random: &mut Random) -> Vec<usize> {
    let mut all: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        all.swap(last, random.below(last as u64 + 1) as usize);
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const EDITS: Edits = Edits {
        files: 40,
        bytes: (1_000, 100_000),
        per_second: 4.0,
        length: Duration::from_secs(500),
        reads: 100.0,
        tail: Duration::from_secs(20),
        seed: 3,
    };

    #[test]
    fn edits_have_the_requested_number_and_cover_all_files() {
        let load = EDITS.draw();
        assert_eq!(load, EDITS.draw());
        assert_ne!(load.writes, Edits { seed: 4, ..EDITS }.draw().writes);
        // Five standard deviations.
        let expected = 2_000.0;
        assert!((load.writes.len() as f64 - expected).abs() < 5.0 * f64::sqrt(expected));
        assert!(load.writes.is_sorted_by_key(|write| write.at));
        let edited: BTreeSet<usize> = load.writes.iter().map(|write| write.file).collect();
        assert_eq!(edited.len(), 40);
        // Other reads, the same edits.
        let slower = Edits { reads: 10.0, tail: Duration::ZERO, ..EDITS }.draw();
        assert_eq!(load.writes, slower.writes);
    }

    #[test]
    fn each_file_is_read_before_any_is_read_again() {
        let load = EDITS.draw();
        assert_eq!(load.reads.len(), 52_000);
        for round in load.reads.chunks(40) {
            let files: BTreeSet<usize> = round.iter().map(|read| read.file).collect();
            assert_eq!(files.len(), 40);
        }
        assert_eq!(load.reads[100].at, Duration::from_secs(1));
    }

    #[test]
    fn files_have_unique_names_and_bounded_lengths() {
        let load = Edits { files: 1_000, ..EDITS }.draw();
        let names: BTreeSet<&str> = load.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names.len(), 1_000);
        let bytes = |number: usize| load.files[number].bytes;
        assert_eq!((bytes(0), bytes(999)), (1_000, 100_000));
        assert!(load.files.is_sorted_by_key(|file| file.bytes));
        assert_eq!(Edits { files: 1, ..EDITS }.draw().files[0].bytes, 1_000);
    }
}
