//! Decides which names to scan and when, and turns the result of a scan into changes. Pure: events and the
//! time come in, names to scan and changes go out.
//!
//! ```text
//!              event              nothing happens for SETTLE, or MAX_SETTLE is over
//!   (quiet) ──────────▶ (gathers) ───────────────────────────────────────────────▶ names to be looked at
//!      ▲                  │    ▲                                                        │
//!      └──────────────────┼────┘ what was not at rest is looked at again, after FIRST_RETRY_PAUSE   │
//!                         └◀────────────────────────────────────────────────────────────┘
//! ```
//!
//! A written file is scanned when it is closed. If it stays open, it is scanned when nothing was written for
//! [`Quiet`], or every [`MAX_OPEN`].
//!
//! An event says only that something happened to a name. The new tree is what a scan finds at and below that
//! name. So the number and the order of events do not matter, and a full scan makes up for lost ones. All
//! names of one scan become one transaction. Both sides of a rename are scanned together: if a moved file is
//! still being written, the whole scan continues to gather. A rename during a scan joins that scan before
//! anything is committed.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use lull_replication::path::Path;
use lull_replication::time::LocalTime;
use lull_replication::types::Version;

use super::scan_result::{
    Changes, Depth, Name, Names, ScanResult, SkippedEntry, add, bytes_of, covers, is_in, meets,
    name_of, simplify,
};

/// Events are handled after a pause of this length without a new one.
const SETTLE: Duration = Duration::from_millis(50);
/// Or this long after the first event, if they do not stop.
const MAX_SETTLE: Duration = Duration::from_secs(1);
/// A file that was still being written is scanned again after this time, which doubles each time up to
/// [`MAX_RETRY_PAUSE`].
const FIRST_RETRY_PAUSE: Duration = Duration::from_secs(1);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(8);
/// A file that is open and never quiet is scanned this long after the first write.
const MAX_OPEN: Duration = Duration::from_secs(60);
/// Scans of files that stay open take one part in this many of the time.
const SHARE: u32 = 10;
/// How often a scan is postponed for a moved file that is still being written.
pub(super) const PUT_OFF: u32 = 5;
/// How often events during a scan may extend it.
pub(super) const MAX_EXTENSIONS: u32 = 10;
/// Folders without events, because the kernel permits no more, after this time.
const BLIND: Duration = Duration::from_secs(60);

/// How long an open file has to stay unwritten before it is scanned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quiet(pub(super) Duration);

impl Default for Quiet {
    fn default() -> Self {
        Quiet(Duration::from_secs(10))
    }
}

/// An event of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FileEvent {
    /// A file was written, and a program may have it open; or its length was changed.
    Written(Name),
    /// A file was closed that was open for writing; or an entry was created or removed.
    Changed(Name),
    /// A file has changed, except for its bytes, as far as is known.
    Touched(Name),
    /// It was moved away. The other side has the same number, if it is in the folder, too.
    Left(Name, u32),
    /// It was moved here.
    Came(Name, u32),
    /// A file was written by a name that was removed, or that another file has taken over. Its other names
    /// are not reported.
    Stray,
    /// Events were lost.
    Lost,
}

impl FileEvent {
    /// The name that it happened to.
    pub(super) fn name(&self) -> Option<&Name> {
        match self {
            FileEvent::Written(name)
            | FileEvent::Changed(name)
            | FileEvent::Touched(name)
            | FileEvent::Left(name, _)
            | FileEvent::Came(name, _) => Some(name),
            FileEvent::Stray | FileEvent::Lost => None,
        }
    }
}

/// A file that may be open: the first and the last write since the last scan.
#[derive(Clone, Copy, Debug)]
struct Open {
    first: LocalTime,
    last: LocalTime,
}

/// Names with events that were not scanned so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    quiet: Quiet,
    names: Names,
    /// Files that were written, and not closed since.
    open: BTreeMap<Name, Open>,
    /// Such files that were just scanned, and when others may be scanned again.
    scanned: BTreeSet<Name>,
    rests: BTreeMap<Name, LocalTime>,
    /// How often in a row these changed during a scan.
    tries: BTreeMap<Name, u32>,
    first: Option<LocalTime>,
    last: LocalTime,
    /// Sides of renames whose other side may still arrive.
    left: BTreeMap<u32, LocalTime>,
    /// Names that something was moved to, and away from, and that were not committed since.
    came: BTreeSet<Name>,
    went: BTreeSet<Name>,
    /// How often the scan was postponed for these, and until when.
    put_off: u32,
    until: Option<LocalTime>,
    /// How often removed names were kept because events did not stop.
    kept: u32,
    again: BTreeMap<Name, (LocalTime, Depth)>,
    /// Names that were left out, with those that they clash with.
    clashes: BTreeMap<Name, BTreeSet<Name>>,
    /// Names that were reported as odd.
    told: BTreeSet<Name>,
    /// It was reported that some folders give no events.
    told_blind: bool,
}

impl Plan {
    pub(super) fn new(quiet: Quiet) -> Self {
        Plan { quiet, ..Plan::default() }
    }

    /// Takes in an event of the kernel.
    pub(super) fn handle(&mut self, now: LocalTime, happened: FileEvent) {
        if happened == FileEvent::Stray {
            // A comparison finds the file.
            return;
        }
        if let FileEvent::Written(name) = happened {
            self.open.entry(name).or_insert(Open { first: now, last: now }).last = now;
            return;
        }
        self.first.get_or_insert(now);
        self.last = now;
        let (name, depth) = match happened {
            FileEvent::Changed(name) | FileEvent::Written(name) => {
                self.open.remove(&name);
                (name, Depth::Whole)
            }
            FileEvent::Touched(name) => (name, Depth::Mode),
            FileEvent::Left(name, number) => {
                self.left.insert(number, now);
                self.went.insert(name.clone());
                (name, Depth::Whole)
            }
            FileEvent::Came(name, number) => {
                self.left.remove(&number);
                self.came.insert(name.clone());
                (name, Depth::Whole)
            }
            FileEvent::Lost | FileEvent::Stray => (Name::new(), Depth::Whole),
        };
        let known = self.names.entry(name).or_insert(depth);
        *known = depth.max(*known);
    }

    /// When the gathered names are due to be scanned.
    fn due(&self) -> Option<LocalTime> {
        let due = self.first?.plus(MAX_SETTLE).min(self.last.plus(SETTLE));
        // The other side comes immediately, if it comes.
        let other = self.left.values().max().map(|left| left.plus(SETTLE));
        Some(other.max(self.until).map_or(due, |at| at.max(due)))
    }

    /// When a file that may be open has to be scanned.
    fn open_due(&self, name: &Name, open: &Open) -> LocalTime {
        let due = open.last.plus(self.quiet.0).min(open.first.plus(MAX_OPEN));
        self.rests.get(name).map_or(due, |rests| due.max(*rests))
    }

    /// Whether this name will be scanned in any case.
    pub(super) fn awaits(&self, name: &Name) -> bool {
        self.open.contains_key(name) || self.again.contains_key(name) || is_in(&self.names, name)
    }

    /// When to ask for names to scan.
    pub(super) fn poll_timeout(&self) -> Option<LocalTime> {
        // Gathered names come first: they may show where a name that is due again has gone.
        self.due().or_else(|| {
            let open = self.open.iter().map(|(name, open)| self.open_due(name, open));
            self.again.values().map(|(at, _)| *at).chain(open).min()
        })
    }

    /// The names to scan now, if any.
    pub(super) fn take(&mut self, now: LocalTime) -> Option<Names> {
        let mut names = Names::new();
        if let Some(due) = self.due() {
            if due > now {
                return None;
            }
            names = core::mem::take(&mut self.names);
            (self.first, self.until) = (None, None);
            self.left.clear();
        }
        self.again.retain(|name, (at, depth)| {
            let later = *at > now;
            if !later {
                let known = names.entry(name.clone()).or_insert(*depth);
                *known = (*known).max(*depth);
            }
            later
        });
        self.rests.retain(|_, rests| *rests > now);
        let due = self.open.iter().filter(|(name, open)| self.open_due(name, open) <= now);
        self.scanned = due.map(|(name, _)| name.clone()).collect();
        for name in &self.scanned {
            self.open.remove(name);
            names.insert(name.clone(), Depth::Whole);
        }
        self.add_clashes(&mut names);
        simplify(&mut names);
        (!names.is_empty()).then_some(names)
    }

    /// Whether events during the scan of these names may make it show one half of a change: one side of a
    /// rename, or a removal without its destination. `committed` holds the committed objects at the names of
    /// the events.
    ///
    /// The old name of a rename is found absent only when both its events can be read: until then the kernel
    /// keeps its folder locked.
    pub(super) fn concerns(
        &self,
        happened: &[FileEvent],
        names: &Names,
        seen: &ScanResult,
        committed: &BTreeMap<Path, Version>,
    ) -> bool {
        happened.iter().any(|one| match one {
            FileEvent::Lost => true,
            FileEvent::Left(name, _) => meets(names, name),
            // Or the other side was handled before.
            FileEvent::Came(name, number) => self.left.contains_key(number) || meets(names, name),
            FileEvent::Changed(name) => seen.lacks(bytes_of(name), names, committed),
            FileEvent::Written(_) | FileEvent::Touched(_) | FileEvent::Stray => false,
        })
    }

    /// Adds this event to the scan that is running, and returns the names to scan as well. It includes
    /// everything gathered: a moved entry may have been moved before, into a new folder without events so
    /// far.
    pub(super) fn grow(
        &mut self,
        now: LocalTime,
        happened: Vec<FileEvent>,
        names: &mut Names,
        seen: &ScanResult,
    ) -> Names {
        for one in happened {
            self.handle(now, one);
        }
        self.first = None;
        self.found_clashes(names, seen);
        let mut more = core::mem::take(&mut self.names);
        self.add_clashes(&mut more);
        simplify(&mut more);
        add(names, &more);
        simplify(names);
        more
    }

    /// Whether the change of this object may belong to a rename. Either it was moved here or away, or it is
    /// new while another one has gone, and the kernel may not have reported a move.
    pub(super) fn is_moved(&self, path: &Path, new_for_gone: bool) -> bool {
        let name = name_of(path);
        new_for_gone || covers(&self.came, &name) || covers(&self.went, &name)
    }

    /// Nothing has happened since to the names that are committed now.
    pub(super) fn at_rest(&mut self) {
        self.kept = 0;
    }

    /// Events do not stop. Removed names are kept for now, because they may be elsewhere, and are scanned
    /// again with the latest events. The number of repetitions is bounded.
    pub(super) fn keep_gone(&mut self, now: LocalTime, changes: &mut Changes) {
        if self.kept == PUT_OFF || changes.values().all(Option::is_some) {
            self.kept = 0;
            return;
        }
        self.kept += 1;
        changes.retain(|path, content| {
            if content.is_none() {
                self.names.insert(name_of(path), Depth::Whole);
            }
            content.is_some()
        });
        (self.first, self.last) = (Some(now), now);
    }

    /// Scans names that were left out together with those that they clash with.
    fn add_clashes(&self, names: &mut Names) {
        let mut rest: BTreeMap<_, _> = self.clashes.iter().collect();
        loop {
            let before = rest.len();
            rest.retain(|link, by| {
                let led = by.iter().any(|by| by.ancestors().any(|one| names.contains_key(one)));
                if led {
                    names.insert((*link).clone(), Depth::Whole);
                }
                !led
            });
            if rest.len() == before {
                return;
            }
        }
    }

    fn found_clashes(&mut self, names: &Names, seen: &ScanResult) {
        self.clashes.retain(|link, _| !is_in(names, link));
        self.clashes.extend(seen.clashes.clone());
    }

    /// Takes in a scan of these names. Returns the oddities to report, each once for as long as it lasts.
    pub(super) fn handle_scan(
        &mut self,
        now: LocalTime,
        names: &Names,
        seen: &ScanResult,
    ) -> Vec<(Name, SkippedEntry)> {
        self.found_clashes(names, seen);
        self.told.retain(|name| !is_in(names, name) || seen.odd.contains_key(name));
        self.tries.retain(|name, _| !is_in(names, name) || seen.restless.contains(name));
        for name in &seen.restless {
            let depth = names.get(name).copied().unwrap_or(Depth::Whole);
            let tries = self.tries.entry(name.clone()).or_default();
            let wait = FIRST_RETRY_PAUSE.saturating_mul(1 << (*tries).min(8)).min(MAX_RETRY_PAUSE);
            *tries += 1;
            self.again.insert(name.clone(), (now.plus(wait), depth));
        }
        for name in &seen.blind {
            self.again.insert(name.clone(), (now.plus(BLIND), Depth::Whole));
        }
        // If one folder cannot be watched, many cannot, and one line says what to do.
        let told_blind = &mut self.told_blind;
        let mut is_new = |odd: &SkippedEntry| {
            *odd != SkippedEntry::Unwatched || !core::mem::replace(told_blind, true)
        };
        let told = &mut self.told;
        let new = seen.odd.iter().filter(|(name, _)| told.insert((*name).clone()));
        let new = new.filter(|(_, odd)| is_new(odd));
        new.map(|(name, odd)| (name.clone(), odd.clone())).collect()
    }

    /// Whether this whole scan is postponed, because one of these files was moved and is being written. Its
    /// old name would be deleted now, and its new name would come later.
    pub(super) fn put_off(
        &mut self,
        now: LocalTime,
        names: &Names,
        restless: &BTreeSet<Name>,
    ) -> bool {
        let moved = restless.iter().any(|name| covers(&self.came, name));
        if !moved || self.put_off == PUT_OFF {
            return false;
        }
        self.put_off += 1;
        add(&mut self.names, names);
        (self.first, self.last) = (Some(now), now);
        self.until = Some(now.plus(FIRST_RETRY_PAUSE));
        true
    }

    /// The last scan took this long. The files in it that stay open are not scanned again before that is a
    /// small share of the time.
    pub(super) fn took(&mut self, now: LocalTime, took: Duration) {
        let rests = now.plus(took.saturating_mul(SHARE));
        for name in core::mem::take(&mut self.scanned) {
            self.rests.insert(name, rests);
        }
    }

    /// The last scan was committed.
    pub(super) fn committed(&mut self) {
        self.came.clear();
        self.went.clear();
        self.put_off = 0;
    }

    /// The scan of these names had no result.
    pub(super) fn failed(&mut self, now: LocalTime, names: Names) {
        let at = now.plus(FIRST_RETRY_PAUSE);
        self.again.extend(names.into_iter().map(|(name, depth)| (name, (at, depth))));
    }
}
