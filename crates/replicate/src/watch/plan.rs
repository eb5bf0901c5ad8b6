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
//! An event says no more than that something happened to a name. What the tree becomes is what a look
//! finds there, at and below that name: so nothing depends on how many events came, or in which order,
//! and lost ones are made up for by a look at everything. All that is looked at together becomes one
//! transaction. Both sides of a rename are: if something of what was moved is not at rest, all of it
//! gathers on; and if something is renamed while it is looked at, what happened meanwhile is looked at as
//! well, before anything is committed.

use core::fmt;
use core::ops::Bound;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::origin::CaseClash;
use crate::path::{Path, PathError};
use crate::time::LocalTime;
use crate::types::{Content, Digest, LARGEST_BODY, Version};

/// A name below the watched folder, as its file system has it; the folder itself is the empty one.
/// Ordered by its parts, so that what is in a folder follows it.
pub(super) type Name = PathBuf;

/// When nothing has happened for so long, what happened is looked at.
const SETTLE: Duration = Duration::from_millis(50);
/// Or so long after the first event, if there is no end of them.
const LONGEST: Duration = Duration::from_secs(1);
/// What was not at rest is looked at again after this time.
const AGAIN: Duration = Duration::from_secs(1);
/// For what was moved and is not at rest all is put off so often.
pub(super) const PUT_OFF: u32 = 5;
/// What is looked at grows so often by what happens meanwhile.
pub(super) const MORE_LOOKS: u32 = 10;
/// And what sends no events, because the kernel gives no more of them, after this time.
const BLIND: Duration = Duration::from_secs(60);

/// What the kernel tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Happened {
    /// A file was closed that was open for writing; or something has come, or gone.
    Changed(Name),
    /// Something of a file has changed that are not its bytes, as far as is known.
    Touched(Name),
    /// It was moved away. The other side of that has the same number, if it is in the folder, too.
    Left(Name, u32),
    /// It was moved here.
    Came(Name, u32),
    /// Events were lost.
    Lost,
}

impl Happened {
    /// What it happened to, as a name of objects, if it can be one.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Happened::Changed(name) | Happened::Touched(name) => name.to_str(),
            Happened::Left(name, _) | Happened::Came(name, _) => name.to_str(),
            Happened::Lost => None,
        }
    }
}

/// What is taken over of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Depth {
    /// What its file has beside its bytes. Somebody may be writing them: that they are complete is told
    /// by another event.
    Mode,
    /// All that is there, and below.
    Whole,
}

/// Names to be looked at. None lies below one of which all is looked at.
pub(super) type Names = BTreeMap<Name, Depth>;

/// What objects are to become; none if they are deleted.
pub(super) type Changes = BTreeMap<Path, Option<Content>>;

/// Why something is not published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Odd {
    Kind,
    Link,
    Name(PathError),
    Large,
    Unreadable(String),
    /// Something else is called so but for case, and that is refused.
    Case(Path),
    /// It is, but late.
    Unwatched,
}

impl fmt::Display for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Odd::Kind => f.write_str("it is no file: move it out of the folder"),
            Odd::Link => f.write_str(
                "it leads out of the folder, or to no file: replace it by what it stands for",
            ),
            Odd::Name(why) => why.fmt(f),
            Odd::Large => write!(f, "it has over {LARGEST_BODY}: cut it into several files"),
            Odd::Unreadable(why) => write!(f, "it cannot be read, and stays as it was: {why}"),
            Odd::Case(other) => {
                write!(f, "it differs from `{other}` only in case, and is left out: rename one")
            }
            Odd::Unwatched => f.write_str(
                "it and perhaps others are looked at once a minute only: raise \
                 fs.inotify.max_user_watches, and start again",
            ),
        }
    }
}

/// What a look has found, at and below the names that it was for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// What can be published.
    pub(super) files: BTreeMap<Path, Content>,
    /// Links among these, with the names that they go by; and what was left out, with what it clashes with.
    pub(super) links: BTreeMap<Name, BTreeSet<Name>>,
    /// What cannot be published: nothing is there.
    pub(super) odd: BTreeMap<Name, Odd>,
    /// Files that were written meanwhile: they stay what they are for now.
    pub(super) restless: BTreeSet<Name>,
    /// What could not be looked into stays what it is, with all below.
    pub(super) hidden: BTreeSet<Name>,
    /// Folders that tell of no events.
    pub(super) blind: BTreeSet<Name>,
}

/// The text of a path as a name.
fn name_of(path: &Path) -> Name {
    Name::from(path.as_str())
}

/// Whether what is looked at is at this name, above it, or below.
fn meets(names: &Names, name: &Name) -> bool {
    let below = names.range::<Name, _>(name..).next();
    is_in(names, name) || below.is_some_and(|(below, _)| below.starts_with(name))
}

/// Whether a name is looked at by itself, or with one above it.
fn is_in(names: &Names, name: &Name) -> bool {
    name.ancestors().any(|above| names.contains_key(above))
}

/// Adds names to others.
fn add(names: &mut Names, more: &Names) {
    for (name, depth) in more {
        let known = names.entry(name.clone()).or_insert(*depth);
        *known = (*known).max(*depth);
    }
}

/// Leaves out those that are looked at with one above them.
fn simplify(names: &mut Names) {
    let mut within: Option<Name> = None;
    names.retain(|name, depth| {
        if within.as_ref().is_some_and(|above| name.starts_with(above)) {
            return false;
        }
        if *depth == Depth::Whole {
            within = Some(name.clone());
        }
        true
    });
}

/// Whether a name or one above it is among these.
fn covers(names: &BTreeSet<Name>, name: &Name) -> bool {
    name.ancestors().any(|above| names.contains(above))
}

impl Seen {
    /// Whether there is no file, and nothing that may be one.
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.restless.is_empty() && self.hidden.is_empty()
    }

    /// Whether something is to be deleted at this name or below it, of what is committed there and was looked
    /// at.
    fn lacks(&self, name: &str, names: &Names, committed: &BTreeMap<Path, Version>) -> bool {
        let below = format!("{name}/");
        let all = committed.range::<str, _>((Bound::Included(below.as_str()), Bound::Unbounded));
        let all = all.take_while(|(path, _)| path.as_str().starts_with(&below));
        committed.get_key_value(name).into_iter().chain(all).any(|(path, _)| {
            let name = name_of(path);
            is_in(names, &name) && !self.files.contains_key(path) && !self.restless.contains(&name)
        })
    }

    /// A later look at these names has found something else there.
    pub(super) fn replace(&mut self, names: &Names, later: Seen) {
        let stays = |name: &Name| !is_in(names, name);
        self.files.retain(|path, _| stays(&name_of(path)));
        self.links.retain(|name, _| stays(name));
        self.odd.retain(|name, _| stays(name));
        for set in [&mut self.restless, &mut self.hidden, &mut self.blind] {
            set.retain(stays);
        }
        self.files.extend(later.files);
        self.links.extend(later.links);
        self.odd.extend(later.odd);
        self.restless.extend(later.restless);
        self.hidden.extend(later.hidden);
        self.blind.extend(later.blind);
    }

    /// What makes of the objects that are committed, at and below these names, what was seen there. A
    /// file of which only the time is another stays as it is, unless its body is lost.
    pub(super) fn changes(
        &self,
        names: &Names,
        committed: &BTreeMap<Path, Version>,
        lost: &BTreeSet<Digest>,
    ) -> Changes {
        let mut changes = BTreeMap::new();
        for (path, content) in &self.files {
            let old = committed.get(path).map(|version| version.content);
            let here = !lost.contains(&content.digest);
            let bytes = here && old.is_some_and(|old| old.digest == content.digest);
            let mode =
                old.is_some_and(|old| old.metadata.executable == content.metadata.executable);
            let partial = names.get(&name_of(path)) == Some(&Depth::Mode);
            if !(bytes && mode) && (bytes || !partial) {
                changes.insert(path.clone(), Some(*content));
            }
        }
        for path in committed.keys().filter(|path| !self.files.contains_key(*path)) {
            let name = name_of(path);
            if !self.restless.contains(&name) && !covers(&self.hidden, &name) {
                changes.insert(path.clone(), None);
            }
        }
        changes
    }

    /// Leaves out what differs from something else only in case: it stays what it is, and is looked at again
    /// when the other one is.
    pub(super) fn leave_out(&mut self, changes: &mut Changes, clashes: Vec<CaseClash>) {
        for clash in clashes {
            let (own, other) = clash.names();
            changes.remove(&clash.path);
            self.odd.insert(name_of(&own), Odd::Case(other));
            self.links.entry(name_of(&clash.path)).or_default().insert(name_of(&clash.other));
        }
    }
}

/// What has happened and was not looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    names: Names,
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
    /// Links, with the names that they go by; and what was left out, with what it clashes with.
    links: BTreeMap<Name, BTreeSet<Name>>,
    /// What was told to be odd.
    told: BTreeSet<Name>,
    /// It was told that there are folders that tell of no events.
    told_blind: bool,
}

impl Plan {
    /// The kernel has told of something.
    pub(super) fn handle(&mut self, now: LocalTime, happened: Happened) {
        self.first.get_or_insert(now);
        self.last = now;
        let (name, depth) = match happened {
            Happened::Changed(name) => (name, Depth::Whole),
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
            Happened::Lost => (Name::new(), Depth::Whole),
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

    /// When to ask for what is to be looked at.
    pub(super) fn poll_timeout(&self) -> Option<LocalTime> {
        // What gathers comes first: it may tell where something has gone that is to be looked at again.
        self.due().or_else(|| self.again.values().map(|(at, _)| *at).min())
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
        self.add_links(&mut names);
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
            Happened::Changed(name) => {
                name.to_str().is_some_and(|name| seen.lacks(name, names, committed))
            }
            Happened::Touched(_) => false,
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
        self.found_links(names, seen);
        let mut more = core::mem::take(&mut self.names);
        self.add_links(&mut more);
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

    /// Links are other names of what they lead to, which sends its events under its own.
    fn add_links(&self, names: &mut Names) {
        let mut rest: BTreeMap<_, _> = self.links.iter().collect();
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

    fn found_links(&mut self, names: &Names, seen: &Seen) {
        self.links.retain(|link, _| !is_in(names, link));
        self.links.extend(seen.links.clone());
    }

    /// These names were looked at. Gives what has to be told of them, each once for as long as it is
    /// so.
    pub(super) fn seen(&mut self, now: LocalTime, names: &Names, seen: &Seen) -> Vec<(Name, Odd)> {
        self.found_links(names, seen);
        self.told.retain(|name| !is_in(names, name) || seen.odd.contains_key(name));
        for name in &seen.restless {
            let depth = names.get(name).copied().unwrap_or(Depth::Whole);
            self.again.insert(name.clone(), (now.plus(AGAIN), depth));
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
