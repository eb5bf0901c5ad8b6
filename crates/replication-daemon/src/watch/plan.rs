//! What is to be looked at and when, and what a look makes of the tree. Pure: events and the time come
//! in, names to be looked at and changes go out.
//!
//! ```text
//!              event              nothing happens for SETTLE, or LONGEST is over
//!   (quiet) ──────────▶ (gathers) ───────────────────────────────────────────────▶ names to be looked at
//!      ▲                  │    ▲                                                        │
//!      └──────────────────┼────┘ what was not at rest is looked at again, after AGAIN   │
//!                         └◀────────────────────────────────────────────────────────────┘
//! ```
//!
//! A file that is written is looked at when it is closed. One that stays open is looked at when nothing was
//! written for [`Quiet`], or every [`LONGEST_OPEN`].
//!
//! An event says no more than that something happened to a name. What the tree becomes is what a look
//! finds there, at and below that name: so nothing depends on how many events came, or in which order,
//! and lost ones are made up for by a look at everything. All that is looked at together becomes one
//! transaction. Both sides of a rename are: if something of what was moved is not at rest, all of it
//! gathers on; and if something is renamed while it is looked at, what happened meanwhile is looked at as
//! well, before anything is committed.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use lull_replication::path::Path;
use lull_replication::time::LocalTime;
use lull_replication::types::Version;

use super::seen::{
    Changes, Depth, Name, Names, Odd, Seen, add, bytes_of, covers, is_in, meets, name_of, simplify,
};

/// When nothing has happened for so long, what happened is looked at.
const SETTLE: Duration = Duration::from_millis(50);
/// Or so long after the first event, if there is no end of them.
const LONGEST: Duration = Duration::from_secs(1);
/// What was not at rest is looked at again after this time, and after twice as long each time until
/// [`LATEST_AGAIN`].
const AGAIN: Duration = Duration::from_secs(1);
const LATEST_AGAIN: Duration = Duration::from_secs(8);
/// A file that is open and never quiet is looked at so long after the first write.
const LONGEST_OPEN: Duration = Duration::from_secs(60);
/// Looks at files that stay open take one part in so many of the time.
const SHARE: u32 = 10;
/// For what was moved and is not at rest all is put off so often.
pub(super) const PUT_OFF: u32 = 5;
/// What is looked at grows so often by what happens meanwhile.
pub(super) const MORE_LOOKS: u32 = 10;
/// And what sends no events, because the kernel gives no more of them, after this time.
const BLIND: Duration = Duration::from_secs(60);

/// How long nothing is written to a file that stays open before it is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quiet(pub(super) Duration);

impl Default for Quiet {
    fn default() -> Self {
        Quiet(Duration::from_secs(10))
    }
}

/// What the kernel tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Happened {
    /// Something was written to a file; a program may have it open. Or its length was changed.
    Written(Name),
    /// A file was closed that was open for writing; or something has come, or gone.
    Changed(Name),
    /// Something of a file has changed that are not its bytes, as far as is known.
    Touched(Name),
    /// It was moved away. The other side of that has the same number, if it is in the folder, too.
    Left(Name, u32),
    /// It was moved here.
    Came(Name, u32),
    /// A file was written by a name that was removed, or that another file has taken over. It may have
    /// another name, which is not reported.
    Stray,
    /// Events were lost.
    Lost,
}

impl Happened {
    /// What it happened to.
    pub(super) fn name(&self) -> Option<&Name> {
        match self {
            Happened::Written(name)
            | Happened::Changed(name)
            | Happened::Touched(name)
            | Happened::Left(name, _)
            | Happened::Came(name, _) => Some(name),
            Happened::Stray | Happened::Lost => None,
        }
    }
}

/// A file that may be open: when it was written first since the last look, and last.
#[derive(Clone, Copy, Debug)]
struct Open {
    first: LocalTime,
    last: LocalTime,
}

/// What has happened and was not looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    quiet: Quiet,
    names: Names,
    /// Files that were written, and not closed since.
    open: BTreeMap<Name, Open>,
    /// Such files that were looked at just now, and when others may be again.
    looked: BTreeSet<Name>,
    rests: BTreeMap<Name, LocalTime>,
    /// How often these were not at rest, one time after the other.
    tries: BTreeMap<Name, u32>,
    first: Option<LocalTime>,
    last: LocalTime,
    /// Sides of renames of which the other one may be on its way.
    left: BTreeMap<u32, LocalTime>,
    /// Names that something was moved to, and away from, and that were not committed since.
    came: BTreeSet<Name>,
    went: BTreeSet<Name>,
    /// How often what was looked at was put off for these, and until when it is.
    put_off: u32,
    until: Option<LocalTime>,
    /// How often what is gone was not deleted, because there was no end of what happened meanwhile.
    kept: u32,
    again: BTreeMap<Name, (LocalTime, Depth)>,
    /// What was left out, with what it clashes with.
    clashes: BTreeMap<Name, BTreeSet<Name>>,
    /// What was told to be odd.
    told: BTreeSet<Name>,
    /// It was told that there are folders that tell of no events.
    told_blind: bool,
}

impl Plan {
    pub(super) fn new(quiet: Quiet) -> Self {
        Plan { quiet, ..Plan::default() }
    }

    /// The kernel has told of something.
    pub(super) fn handle(&mut self, now: LocalTime, happened: Happened) {
        if happened == Happened::Stray {
            // A comparison finds the file.
            return;
        }
        if let Happened::Written(name) = happened {
            self.open.entry(name).or_insert(Open { first: now, last: now }).last = now;
            return;
        }
        self.first.get_or_insert(now);
        self.last = now;
        let (name, depth) = match happened {
            Happened::Changed(name) | Happened::Written(name) => {
                self.open.remove(&name);
                (name, Depth::Whole)
            }
            Happened::Touched(name) => (name, Depth::Mode),
            Happened::Left(name, number) => {
                self.left.insert(number, now);
                self.went.insert(name.clone());
                (name, Depth::Whole)
            }
            Happened::Came(name, number) => {
                self.left.remove(&number);
                self.came.insert(name.clone());
                (name, Depth::Whole)
            }
            Happened::Lost | Happened::Stray => (Name::new(), Depth::Whole),
        };
        let known = self.names.entry(name).or_insert(depth);
        *known = depth.max(*known);
    }

    /// When what was gathered is to be looked at.
    fn due(&self) -> Option<LocalTime> {
        let due = self.first?.plus(LONGEST).min(self.last.plus(SETTLE));
        // The other side comes at once, if it comes.
        let other = self.left.values().max().map(|left| left.plus(SETTLE));
        Some(other.max(self.until).map_or(due, |at| at.max(due)))
    }

    /// When a file that may be open is to be looked at.
    fn open_due(&self, name: &Name, open: &Open) -> LocalTime {
        let due = open.last.plus(self.quiet.0).min(open.first.plus(LONGEST_OPEN));
        self.rests.get(name).map_or(due, |rests| due.max(*rests))
    }

    /// Whether this name is to be looked at in any case.
    pub(super) fn awaits(&self, name: &Name) -> bool {
        self.open.contains_key(name) || self.again.contains_key(name) || is_in(&self.names, name)
    }

    /// When to ask for what is to be looked at.
    pub(super) fn poll_timeout(&self) -> Option<LocalTime> {
        // What gathers comes first: it may tell where something has gone that is to be looked at again.
        self.due().or_else(|| {
            let open = self.open.iter().map(|(name, open)| self.open_due(name, open));
            self.again.values().map(|(at, _)| *at).chain(open).min()
        })
    }

    /// What is to be looked at now, if anything is.
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
        self.looked = due.map(|(name, _)| name.clone()).collect();
        for name in &self.looked {
            self.open.remove(name);
            names.insert(name.clone(), Depth::Whole);
        }
        self.add_clashes(&mut names);
        simplify(&mut names);
        (!names.is_empty()).then_some(names)
    }

    /// Whether any of this, which happened while these names were looked at, may make the look show one half
    /// of something: one side of a rename, or what is gone without where it went. `committed` is what there is
    /// of objects at the names to which it happened.
    ///
    /// The old name of a rename can't be found absent before both its events can be read: until then the
    /// kernel keeps the folder locked that it was in.
    pub(super) fn concerns(
        &self,
        happened: &[Happened],
        names: &Names,
        seen: &Seen,
        committed: &BTreeMap<Path, Version>,
    ) -> bool {
        happened.iter().any(|one| match one {
            Happened::Lost => true,
            Happened::Left(name, _) => meets(names, name),
            // Or the other side was taken in before.
            Happened::Came(name, number) => self.left.contains_key(number) || meets(names, name),
            Happened::Changed(name) => seen.lacks(bytes_of(name), names, committed),
            Happened::Written(_) | Happened::Touched(_) | Happened::Stray => false,
        })
    }

    /// Takes this in for what is being looked at, and gives what is to be looked at as well: all of it, because
    /// what was moved may have been moved before, and into a folder that is new and tells of nothing yet.
    pub(super) fn grow(
        &mut self,
        now: LocalTime,
        happened: Vec<Happened>,
        names: &mut Names,
        seen: &Seen,
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

    /// Whether what has become of this object may belong to a rename: it was moved here or away; or it is new where
    /// something is gone, and nobody may have told that it was moved.
    pub(super) fn is_moved(&self, path: &Path, new_for_gone: bool) -> bool {
        let name = name_of(path);
        new_for_gone || covers(&self.came, &name) || covers(&self.went, &name)
    }

    /// Nothing has happened since to what is committed now.
    pub(super) fn at_rest(&mut self) {
        self.kept = 0;
    }

    /// There is no end of what happens: what is gone stays for now, because it may be elsewhere, and is looked
    /// at again with what has happened last. That too has an end.
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

    /// What was left out is looked at again with what it clashes with.
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

    fn found_clashes(&mut self, names: &Names, seen: &Seen) {
        self.clashes.retain(|link, _| !is_in(names, link));
        self.clashes.extend(seen.clashes.clone());
    }

    /// These names were looked at. Gives what has to be told of them, each once for as long as it is
    /// so.
    pub(super) fn seen(&mut self, now: LocalTime, names: &Names, seen: &Seen) -> Vec<(Name, Odd)> {
        self.found_clashes(names, seen);
        self.told.retain(|name| !is_in(names, name) || seen.odd.contains_key(name));
        self.tries.retain(|name, _| !is_in(names, name) || seen.restless.contains(name));
        for name in &seen.restless {
            let depth = names.get(name).copied().unwrap_or(Depth::Whole);
            let tries = self.tries.entry(name.clone()).or_default();
            let wait = AGAIN.saturating_mul(1 << (*tries).min(8)).min(LATEST_AGAIN);
            *tries += 1;
            self.again.insert(name.clone(), (now.plus(wait), depth));
        }
        for name in &seen.blind {
            self.again.insert(name.clone(), (now.plus(BLIND), Depth::Whole));
        }
        // Where one can't be watched, many can't, and one line says what to do.
        let told_blind = &mut self.told_blind;
        let mut is_new =
            |odd: &Odd| *odd != Odd::Unwatched || !core::mem::replace(told_blind, true);
        let told = &mut self.told;
        let new = seen.odd.iter().filter(|(name, _)| told.insert((*name).clone()));
        let new = new.filter(|(_, odd)| is_new(odd));
        new.map(|(name, odd)| (name.clone(), odd.clone())).collect()
    }

    /// Whether all that these names were looked at for is put off, because one of these files is being
    /// written and was moved: what it was moved from would go now, and it would come later.
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
        self.until = Some(now.plus(AGAIN));
        true
    }

    /// The last look took so long. Of the files that stay open, which were looked at, none is again before that is
    /// a small share of the time.
    pub(super) fn took(&mut self, now: LocalTime, took: Duration) {
        let rests = now.plus(took.saturating_mul(SHARE));
        for name in core::mem::take(&mut self.looked) {
            self.rests.insert(name, rests);
        }
    }

    /// What was seen last is committed.
    pub(super) fn committed(&mut self) {
        self.came.clear();
        self.went.clear();
        self.put_off = 0;
    }

    /// Nothing came of what these names were looked at for.
    pub(super) fn failed(&mut self, now: LocalTime, names: Names) {
        let at = now.plus(AGAIN);
        self.again.extend(names.into_iter().map(|(name, depth)| (name, (at, depth))));
    }
}
