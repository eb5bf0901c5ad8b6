mod index;
mod open;
mod races;
mod scan_result;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lull_cc::Bytes;
use lull_replication::origin::CaseClash;
use lull_replication::path::Path;
use lull_replication::time::{LocalTime, WallTime};
use lull_replication::types::{Content, Digest, Metadata, Mode, Sequence, Version};
use proptest::prelude::*;

use super::plan::{FileEvent, MAX_EXTENSIONS, PUT_OFF, Plan};
use super::scan_result::{Depth, Name, Names, ScanResult, SkippedEntry, name_of};

fn at(ms: i64) -> LocalTime {
    LocalTime::from_nanos(ms * 1_000_000)
}

fn path(text: &str) -> Path {
    Path::new(text).expect("a path")
}

fn content(body: u8, executable: bool) -> Content {
    let mode = if executable { Mode::EXECUTABLE } else { Mode::PLAIN };
    let metadata = Metadata { mode, ..Metadata::default() };
    Content { digest: Digest([body; 32]), size: Bytes(1), metadata }
}

fn changed(name: &str) -> FileEvent {
    FileEvent::Changed(name.into())
}

fn written(name: &str) -> FileEvent {
    FileEvent::Written(name.into())
}

fn names(of: Option<Names>) -> Vec<String> {
    let shown = |(name, depth): (Name, Depth)| match depth {
        Depth::Whole => name.display().to_string(),
        Depth::Mode => format!("{} (mode)", name.display()),
    };
    of.unwrap_or_default().into_iter().map(shown).collect()
}

#[test]
fn change_is_scanned_after_a_pause() {
    let mut plan = Plan::default();
    assert_eq!(plan.poll_timeout(), None);
    plan.handle(at(0), changed("b"));
    plan.handle(at(30), changed("a"));
    plan.handle(at(40), changed("b"));
    assert_eq!(plan.poll_timeout(), Some(at(90)));
    assert_eq!(plan.take(at(89)), None);
    assert_eq!(names(plan.take(at(90))), ["a", "b"]);
    assert_eq!(plan.poll_timeout(), None);
}

#[test]
fn constantly_written_file_is_scanned_once_a_second() {
    let mut plan = Plan::default();
    let mut looks = Vec::new();
    for ms in 0..5_000 {
        plan.handle(at(ms), changed("a"));
        if plan.take(at(ms)).is_some() {
            looks.push(ms);
        }
    }
    assert_eq!(looks, [1_000, 2_001, 3_002, 4_003]);
}

#[test]
fn both_sides_of_a_rename_are_scanned_together() {
    let mut plan = Plan::default();
    plan.handle(at(0), changed("a"));
    plan.handle(at(990), FileEvent::Left("old".into(), 7));
    assert_eq!(plan.take(at(1_000)), None, "where it went is on its way");
    plan.handle(at(1_010), FileEvent::Came("new".into(), 7));
    assert_eq!(names(plan.take(at(1_010))), ["a", "new", "old"]);
    // The wait for an entry that has left the folder is bounded.
    plan.handle(at(2_000), FileEvent::Left("gone".into(), 8));
    assert_eq!(names(plan.take(at(2_050))), ["gone"]);
}

#[test]
fn name_within_a_scanned_folder_is_not_scanned_twice() {
    let mut plan = Plan::default();
    for name in ["a/b", "a", "a.b", "a/b/c", "b/c"] {
        plan.handle(at(0), changed(name));
    }
    plan.handle(at(0), FileEvent::Touched("b/c".into()));
    plan.handle(at(0), FileEvent::Touched("d".into()));
    assert_eq!(names(plan.take(at(50))), ["a", "a.b", "b/c", "d (mode)"]);
    plan.handle(at(100), changed("a"));
    plan.handle(at(100), FileEvent::Lost);
    assert_eq!(names(plan.take(at(150))), [""], "all of it");
}

#[test]
fn restless_file_is_scanned_again_and_odd_one_reported_once() {
    let mut plan = Plan::default();
    let all: Names = [(Name::new(), Depth::Whole)].into();
    let mut seen = ScanResult { restless: [Name::from("a")].into(), ..ScanResult::default() };
    seen.odd =
        [("pipe".into(), SkippedEntry::Kind), ("b/device".into(), SkippedEntry::Kind)].into();
    assert_eq!(plan.handle_scan(at(0), &all, &seen).len(), 2);
    assert_eq!(plan.handle_scan(at(10), &all, &seen), []);
    assert_eq!(plan.take(at(2_009)), None, "the second time it waits for longer");
    assert_eq!(names(plan.take(at(2_010))), ["a"]);
    // It is reported again after it was something else.
    let pipe: Names = [("pipe".into(), Depth::Whole)].into();
    assert_eq!(plan.handle_scan(at(3_000), &pipe, &ScanResult::default()), []);
    assert_eq!(plan.handle_scan(at(3_000), &all, &seen), [("pipe".into(), SkippedEntry::Kind)]);
    // For folders without events one line is enough.
    let mut blind = ScanResult { blind: [Name::from("e")].into(), ..ScanResult::default() };
    blind.odd =
        [("e".into(), SkippedEntry::Unwatched), ("f".into(), SkippedEntry::Unwatched)].into();
    assert_eq!(plan.handle_scan(at(3_000), &all, &blind), [("e".into(), SkippedEntry::Unwatched)]);
    plan.take(at(8_000));
    plan.failed(at(9_000), [("x".into(), Depth::Mode), ("y".into(), Depth::Whole)].into());
    assert_eq!(names(plan.take(at(10_000))), ["x (mode)", "y"]);
}

#[test]
fn file_moved_while_written_delays_its_whole_scan() {
    let mut plan = Plan::default();
    let log: BTreeSet<Name> = [Name::from("new/log")].into();
    plan.handle(at(0), FileEvent::Left("old".into(), 7));
    plan.handle(at(0), FileEvent::Came("new".into(), 7));
    let mut now = 50;
    for _ in 0..PUT_OFF {
        let scanned = plan.take(at(now)).expect("it is time");
        assert_eq!(names(Some(scanned.clone())), ["new", "old"]);
        plan.handle_scan(
            at(now),
            &scanned,
            &ScanResult { restless: log.clone(), ..ScanResult::default() },
        );
        assert!(plan.put_off(at(now), &scanned, &log));
        assert_eq!(plan.poll_timeout(), Some(at(now + 1_000)));
        // Later events wait as well: one may be another move.
        plan.handle(at(now + 500), changed("new/log"));
        assert_eq!(plan.take(at(now + 999)), None);
        now += 1_000;
    }
    let scanned = plan.take(at(now)).expect("it is time");
    assert!(!plan.put_off(at(now), &scanned, &log), "not without end");
    plan.committed();
    // A file that was not moved is left alone.
    plan.handle(at(now), changed("new/log"));
    let scanned = plan.take(at(now + 50)).expect("it is time");
    plan.handle_scan(
        at(now),
        &scanned,
        &ScanResult { restless: log.clone(), ..ScanResult::default() },
    );
    assert!(!plan.put_off(at(now), &scanned, &log));
    assert_eq!(names(plan.take(at(now + 8_000))), ["new/log"]);
}

#[test]
fn clash_is_scanned_with_its_counterpart() {
    let mut plan = Plan::default();
    let all: Names = [(Name::new(), Depth::Whole)].into();
    let by = |names: &[&str]| names.iter().map(Name::from).collect();
    let clashes = [("b/second".into(), by(&["first"])), ("first".into(), by(&["a/file"]))].into();
    plan.handle_scan(at(0), &all, &ScanResult { clashes, ..ScanResult::default() });
    plan.handle(at(0), changed("a"));
    assert_eq!(names(plan.take(at(50))), ["a", "b/second", "first"]);
    plan.handle(at(100), changed("other"));
    assert_eq!(names(plan.take(at(150))), ["other"]);
    // Once removed, they no longer clash.
    plan.handle_scan(at(200), &all, &ScanResult::default());
    plan.handle(at(200), changed("a"));
    assert_eq!(names(plan.take(at(250))), ["a"]);
}

#[test]
fn clash_is_left_out_and_scanned_with_its_counterpart() {
    let mut plan = Plan::default();
    let all: Names = [(Name::new(), Depth::Whole)].into();
    let files = ["D", "b", "d/y"].map(|name| (path(name), content(1, false)));
    let mut seen = ScanResult { files: files.into(), ..ScanResult::default() };
    let mut changes = seen.changes(&all, &BTreeMap::new(), &BTreeSet::new());
    let clash = CaseClash { path: path("d/y"), other: path("D") };
    seen.leave_out(&mut changes, vec![clash]);
    assert_eq!(changes.keys().map(Path::to_string).collect::<Vec<_>>(), ["D", "b"]);
    let told = plan.handle_scan(at(0), &all, &seen);
    assert_eq!(told, [("d".into(), SkippedEntry::Case(path("D")))]);
    assert_eq!(plan.handle_scan(at(0), &all, &seen), [], "told once");
    plan.handle(at(0), changed("b"));
    assert_eq!(names(plan.take(at(50))), ["b"]);
    plan.handle(at(100), changed("D"));
    assert_eq!(names(plan.take(at(150))), ["D", "d/y"]);
}

/// A folder: files by their names.
type Folder = BTreeMap<Name, Content>;

#[derive(Clone, Debug)]
enum Act {
    Write(&'static str, u8),
    /// By a program that has it open.
    WriteOpen(&'static str, u8),
    Mode(&'static str),
    Delete(&'static str),
    /// A file, or a folder with its contents.
    Move(&'static str, &'static str),
    Wait(i64),
    LoseEvents,
    /// During one more scan the marker is being written.
    Busy,
    /// This is done after this many steps of the next scan.
    Meanwhile(usize, Box<Act>),
}

/// Names of files; folders are the parts before their slashes. No name is both.
const FILES: &[&str] = &["a", "b", "d/a", "d/b", "d/d/a", "e/a", "e/d/a"];
const FOLDERS: &[&str] = &["d", "d/d", "e", "f"];
/// A file that is only ever moved, with `d`, `e` and `f`.
const MARKER: &str = "marker";

fn act() -> impl Strategy<Value = Act> {
    let meanwhile = (0..6_usize, deed());
    prop_oneof![
        13 => deed(),
        8 => meanwhile.prop_map(|(steps, act)| Act::Meanwhile(steps, Box::new(act))),
        4 => (0..400_i64).prop_map(Act::Wait),
        1 => Just(Act::Busy),
    ]
}

/// An action during a scan.
fn deed() -> impl Strategy<Value = Act> {
    let file = || prop::sample::select(FILES);
    let folder = || prop::sample::select(FOLDERS);
    prop_oneof![
        4 => (file(), any::<u8>()).prop_map(|(name, body)| Act::Write(name, body)),
        2 => (file(), any::<u8>()).prop_map(|(name, body)| Act::WriteOpen(name, body)),
        1 => file().prop_map(Act::Mode),
        2 => file().prop_map(Act::Delete),
        2 => (file(), file()).prop_map(|(from, to)| Act::Move(from, to)),
        3 => (folder(), folder()).prop_map(|(from, to)| Act::Move(from, to)),
        1 => Just(Act::LoseEvents),
    ]
}

fn below(folder: &Folder, name: &Name) -> Vec<Name> {
    folder.keys().filter(|one| one.starts_with(name)).cloned().collect()
}

/// A folder, its reported events, and an origin that carries out requests.
struct World {
    plan: Plan,
    now: i64,
    folder: Folder,
    committed: BTreeMap<Path, Version>,
    commits: u64,
    /// Scans during which the marker is being written, and how often that still happens.
    busy: u32,
    left: u32,
    /// Actions during scans: each after this many more steps.
    meanwhile: VecDeque<(usize, Act)>,
    /// Number of these acts during one batch, at most.
    most_meanwhile: u32,
    /// Events that were not read so far.
    heard: Vec<FileEvent>,
    renames: u32,
    /// The lowest and the highest number of places with the marker.
    least: usize,
    most: usize,
}

impl World {
    fn new(folder: Folder, most_meanwhile: u32) -> Self {
        let (plan, committed, meanwhile, heard) = Default::default();
        let (busy, left) = (0, PUT_OFF);
        World {
            plan,
            now: 0,
            folder,
            committed,
            commits: 0,
            busy,
            left,
            meanwhile,
            most_meanwhile,
            heard,
            renames: 0,
            least: 1,
            most: 1,
        }
    }

    fn report(&mut self, happened: FileEvent) {
        self.heard.push(happened);
    }

    fn read_events(&mut self) {
        for happened in self.heard.drain(..) {
            self.plan.handle(at(self.now), happened);
        }
    }

    /// One step of a scan: an action may precede it.
    fn step(&mut self, acts: &mut u32) {
        while let Some((steps, _)) = self.meanwhile.front_mut().filter(|_| *acts > 0) {
            if *steps > 0 {
                *steps -= 1;
                return;
            }
            let Some((_, act)) = self.meanwhile.pop_front() else { return };
            *acts -= 1;
            self.act(act);
        }
    }

    /// Scans name by name, as the real one does: lists folders, and reads files.
    fn see(&mut self, names: &Names, acts: &mut u32) -> ScanResult {
        let mut seen = ScanResult::default();
        for name in names.keys() {
            let mut rest = vec![name.clone()];
            while let Some(name) = rest.pop() {
                self.step(acts);
                if let Some(content) = self.folder.get(&name) {
                    if self.busy > 0 && name.ends_with(MARKER) {
                        self.busy -= 1;
                        seen.restless.insert(name);
                    } else {
                        seen.files.insert(path(&name.to_string_lossy()), *content);
                    }
                    continue;
                }
                let within = |one: &Name| {
                    let first = one.strip_prefix(&name).ok()?.components().next()?;
                    Some(name.join(first))
                };
                rest.extend(self.folder.keys().filter_map(within).collect::<BTreeSet<_>>());
            }
        }
        seen
    }

    /// Scans, if it is time, and commits the result.
    fn scan(&mut self) {
        self.read_events();
        let Some(mut names) = self.plan.take(at(self.now)) else { return };
        let mut acts = self.most_meanwhile;
        let mut seen = self.see(&names, &mut acts);
        let mut looks = MAX_EXTENSIONS;
        let endless = loop {
            if !self.plan.concerns(&self.heard, &names, &seen, &self.committed) {
                break false;
            }
            if looks == 0 {
                break true;
            }
            looks -= 1;
            let heard = core::mem::take(&mut self.heard);
            let more = self.plan.grow(at(self.now), heard, &mut names, &seen);
            let later = self.see(&more, &mut acts);
            seen.replace(&more, later);
        };
        assert_eq!(self.plan.handle_scan(at(self.now), &names, &seen), []);
        let is_in = |name: &Name| name.ancestors().any(|above| names.contains_key(above));
        let there = self.committed.clone().into_iter();
        let there = there.filter(|(path, _)| is_in(&name_of(path))).collect();
        for name in seen.behind(&names, &there) {
            self.plan.handle(at(self.now), FileEvent::Written(name));
        }
        if self.plan.put_off(at(self.now), &names, &seen.restless) {
            return;
        }
        let mut changes = seen.changes(&names, &there, &BTreeSet::new());
        if endless {
            self.plan.keep_gone(at(self.now), &mut changes);
        } else {
            self.plan.at_rest();
        }
        self.commits += u64::from(!changes.is_empty());
        for (path, content) in changes {
            let sequence = Sequence(self.commits);
            match content {
                Some(content) => drop(self.committed.insert(path, Version { sequence, content })),
                None => drop(self.committed.remove(&path)),
            }
        }
        self.plan.committed();
        self.plan.took(at(self.now), std::time::Duration::from_millis(1));
        let markers = self
            .committed
            .keys()
            .filter(|path| path.as_bytes().ends_with(MARKER.as_bytes()))
            .count();
        (self.least, self.most) = (self.least.min(markers), self.most.max(markers));
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Write(name, body) => {
                // Reported when it is complete; an earlier scan sees a part of it.
                self.folder.insert(name.into(), content(body, false));
                self.report(changed(name));
            }
            Act::WriteOpen(name, body) => {
                self.folder.insert(name.into(), content(body, false));
                self.report(written(name));
            }
            Act::Mode(name) => {
                if let Some(content) = self.folder.get_mut(&Name::from(name)) {
                    content.metadata.mode =
                        Mode::new(u32::from(content.metadata.mode.bits()) ^ 0o111);
                    self.report(FileEvent::Touched(name.into()));
                }
            }
            Act::Delete(name) => {
                if self.folder.remove(&Name::from(name)).is_some() {
                    self.report(changed(name));
                }
            }
            Act::Move(from, to) => {
                let (from, to) = (Name::from(from), Name::from(to));
                let moved = below(&self.folder, &from);
                let is_file = self.folder.contains_key(&from);
                // As in the system: not into itself, and not over a folder with files.
                let taken = below(&self.folder, &to);
                if moved.is_empty() || to.starts_with(&from) || from.starts_with(&to) {
                    return;
                }
                if !(taken.is_empty() || is_file && taken == [to.clone()]) {
                    return;
                }
                for name in moved {
                    let rest = name.strip_prefix(&from).expect("below").to_owned();
                    let content = self.folder.remove(&name).expect("there");
                    let new = if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) };
                    self.folder.insert(new, content);
                }
                self.renames += 1;
                self.report(FileEvent::Left(from, self.renames));
                self.report(FileEvent::Came(to, self.renames));
            }
            Act::Wait(ms) => {
                let until = self.now + ms;
                self.read_events();
                while let Some(next) = self.plan.poll_timeout().filter(|next| *next <= at(until)) {
                    self.now = self.now.max(next.as_nanos() / 1_000_000);
                    self.scan();
                    self.read_events();
                }
                self.now = until;
            }
            Act::LoseEvents => {
                // This change is not reported; only the next one is.
                self.folder.remove(&Name::from("a"));
                self.folder.insert("b".into(), content(7, true));
                self.report(FileEvent::Lost);
            }
            Act::Busy if self.left > 0 => (self.busy, self.left) = (self.busy + 1, self.left - 1),
            Act::Busy => {}
            Act::Meanwhile(steps, act) => self.meanwhile.push_back((steps, *act)),
        }
    }

    /// Begins with a full scan.
    fn begin(&mut self) {
        self.report(FileEvent::Lost);
        self.act(Act::Wait(50));
    }

    fn in_the_end(&mut self) -> Folder {
        // Some acts only happen during a scan of a file that stays open, which is 10 s later.
        self.act(Act::Wait(1_200_000));
        let all = self.committed.iter();
        all.map(|(path, version)| (name_of(path), version.content)).collect()
    }
}

fn with_marker() -> Folder {
    [(Name::from("d/marker"), content(255, false))].into()
}

proptest! {
    #[test]
    fn folder_is_committed_eventually_and_each_move_at_once(
        acts in prop::collection::vec(act(), 1..60),
    ) {
        let mut world = World::new(with_marker(), MAX_EXTENSIONS);
        world.begin();
        for act in acts {
            world.act(act);
        }
        let committed = world.in_the_end();
        prop_assert_eq!((world.least, world.most), (1, 1), "never in two places, never in none");
        prop_assert_eq!(&committed, &world.folder);
        prop_assert_eq!(world.plan.poll_timeout(), None);
    }

    #[test]
    fn entry_moved_repeatedly_during_scans_is_never_missing(
        acts in prop::collection::vec(deed(), 20..60),
    ) {
        let mut world = World::new(with_marker(), u32::MAX);
        world.begin();
        // One act at each step of the scans, until there are no steps left.
        world.meanwhile = acts.into_iter().map(|act| (1, act)).collect();
        world.report(FileEvent::Lost);
        let committed = world.in_the_end();
        prop_assert!(world.least > 0);
        prop_assert_eq!(&committed, &world.folder);
    }
}

#[test]
fn removed_entry_is_deleted_eventually_despite_moves() {
    let mut plan = Plan::default();
    let gone = || [(path("gone"), None), (path("new"), Some(content(1, false)))].into();
    for _ in 0..PUT_OFF {
        let mut changes = gone();
        plan.keep_gone(at(0), &mut changes);
        assert_eq!(changes.len(), 1);
        assert_eq!(names(plan.take(at(50))), ["gone"], "with what has happened last");
    }
    let mut changes = gone();
    plan.keep_gone(at(0), &mut changes);
    assert_eq!((changes.len(), plan.take(at(50))), (2, None));
}

#[test]
fn entry_moved_during_a_scan_joins_it() {
    let left = |name: &str| FileEvent::Left(name.into(), 7);
    let came = |name: &str| FileEvent::Came(name.into(), 7);
    let version = Version { sequence: Sequence(1), content: content(1, false) };
    let committed: BTreeMap<_, _> = [(path("z/x"), version), (path("z/y"), version)].into();
    let scanned =
        || -> Names { [("big".into(), Depth::Whole), ("z/x".into(), Depth::Whole)].into() };
    let seen =
        ScanResult { files: [(path("big"), content(2, false))].into(), ..ScanResult::default() };
    let plan = Plan::default();
    for (happened, is_half, why) in [
        (vec![left("z"), came("y")], true, "its folder was renamed"),
        (vec![left("w"), came("z/x")], true, "it may be seen, and the old name be there yet"),
        (vec![left("w"), came("y")], false, "none of both was looked at"),
        (vec![changed("z/x")], true, "it was deleted; perhaps it was copied before"),
        (vec![changed("z")], true, "so was its folder"),
        (vec![changed("z/y")], false, "it was not looked at"),
        (vec![changed("big")], false, "it was written again, and is there"),
        (vec![FileEvent::Touched("z/x".into())], false, "nothing goes by that"),
        (vec![FileEvent::Lost], true, "events were lost"),
    ] {
        assert_eq!(plan.concerns(&happened, &scanned(), &seen, &committed), is_half, "{why}");
    }
    // One side comes alone: the other one is scanned as well, with everything else there.
    let (mut plan, mut all) = (plan, scanned());
    let more = plan.grow(at(0), vec![changed("other"), left("z")], &mut all, &seen);
    assert_eq!(names(Some(more)), ["other", "z"]);
    assert!(plan.concerns(&[came("y")], &all, &seen, &committed));
    let more = plan.grow(at(0), vec![came("y")], &mut all, &seen);
    assert_eq!(names(Some(more)), ["y"]);
    assert_eq!(names(Some(all)), ["big", "other", "y", "z"]);
    assert_eq!(plan.take(at(1_000)), None, "nothing is left for the next time");
}
