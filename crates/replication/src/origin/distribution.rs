//! Publications that replicas are to have by a deadline: what is missing where, and how urgent it is.
//!
//! The bodies are listed once. Each replica has the numbers of those that it lacks, which are checked in rounds. A body
//! that has arrived is not checked again.

use core::ops::Bound;
use core::time::Duration;
use std::collections::BTreeMap;

use lull_cc::Bytes;

use super::Origin;
use super::arrivals::InPart;
use super::below::Known;
use super::interface::Event;
use super::peer::Link;
use super::urgency::Urgency;
use super::urgent_below::UrgentBelow;
use crate::message::{BodyHeader, Frame, Urgent};
use crate::path::Path;
use crate::time::{LocalTime, Reading};
use crate::types::{ReplicaId, Sequence, Version};

/// Names a distribution. Numbers are not used twice in a life of the origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DistributionId(pub u64);

/// Which replicas are to have what, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distribution {
    /// The state that they are to show.
    pub at: Sequence,
    /// The files of that state whose paths have this prefix are to be there.
    pub within: Vec<u8>,
    /// The time by which they are to be there; none if they may take any time.
    pub deadline: Option<LocalTime>,
    /// The replicas.
    pub replicas: Vec<ReplicaId>,
}

/// A replica's progress in a distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// The replica.
    pub replica: ReplicaId,
    /// Whether it is connected.
    pub is_connected: bool,
    /// The state that it answers reads with; none if it has not connected in this life of the origin.
    pub state: Option<Sequence>,
    /// Bytes of the bodies that it lacks; none while they are counted for the first time.
    pub missing: Option<Bytes>,
    /// Files that it lacks.
    pub files: u64,
    /// Whether its bodies are sent at normal priority.
    pub is_urgent: bool,
    /// Bytes that arrive in a second; none if that is not known.
    pub rate: Option<f64>,
    /// By how much the deadline would be missed at the highest rate so far; none if it would be met, or no rate is known.
    pub late_by: Option<Duration>,
    /// When it had everything that is pushed to it.
    pub done: Option<LocalTime>,
    /// Whether it has said since then that it lacks no body at all.
    pub has_all: bool,
}

/// All of a distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// The state that the replicas are to show.
    pub at: Sequence,
    /// When they are to have it.
    pub deadline: Option<LocalTime>,
    /// Bytes of its bodies, and how many files there are; none while they are listed.
    pub all: Option<(Bytes, u64)>,
    /// The replicas, in the order of their numbers.
    pub arrivals: Vec<Arrival>,
}

/// A body that is to be there.
#[derive(Clone, Debug)]
struct Item {
    path: Path,
    sequence: Sequence,
    size: Bytes,
}

/// A distribution that is observed.
#[derive(Debug)]
struct Active {
    wanted: Distribution,
    items: Vec<Item>,
    bytes: u64,
    /// How many items there were, when all replicas have them.
    count: u64,
    /// All items are listed.
    is_listed: bool,
    hosts: BTreeMap<ReplicaId, Host>,
    /// The replica whose round goes on, by its place.
    turn: usize,
    /// When the next round begins.
    next_round: LocalTime,
    /// A round goes on.
    is_checking: bool,
}

#[derive(Debug)]
struct Host {
    /// The numbers of the items that it lacks, as far as they were checked.
    lacks: Vec<u32>,
    /// The round: how many were checked, how many of these stay, and their bytes.
    checked: usize,
    stay: usize,
    bytes: u64,
    missing: Option<u64>,
    urgency: Option<Urgency>,
    was_urgent: bool,
    /// The next item to be sent at normal priority.
    next: usize,
    done: Option<LocalTime>,
    /// Below a relay: since when it shows the state, and the last report that was looked at.
    shows_since: Option<LocalTime>,
    reported: Option<LocalTime>,
}

/// All distributions of an origin.
#[derive(Debug, Default)]
pub(super) struct Distributions {
    all: BTreeMap<DistributionId, Active>,
    last: DistributionId,
    /// The highest rate to each replica so far, in bytes per second.
    best: BTreeMap<ReplicaId, f64>,
    /// Publications that would be late at replicas below relays.
    pub(super) below: UrgentBelow,
}

impl Distributions {
    /// The bodies that a replica is to have at normal priority.
    fn urgent(&mut self, replica: ReplicaId) -> impl Iterator<Item = (&[Item], &mut Host)> {
        self.all.values_mut().filter_map(move |active| {
            let host = active.hosts.get_mut(&replica)?;
            let urgency = host.urgency.as_ref()?;
            urgency.is_urgent().then_some((&active.items[..], host))
        })
    }

    pub(super) fn is_urgent(&self, replica: ReplicaId) -> bool {
        self.all.values().any(|active| {
            let host = active.hosts.get(&replica);
            host.and_then(|host| host.urgency.as_ref()).is_some_and(Urgency::is_urgent)
        })
    }

    /// Whether a body is one of those.
    fn has_urgent(&self, replica: ReplicaId, path: &Path, at: Sequence) -> bool {
        self.all.values().any(|active| {
            let host = active.hosts.get(&replica).and_then(|host| host.urgency.as_ref());
            host.is_some_and(Urgency::is_urgent)
                && at <= active.wanted.at
                && path.as_bytes().starts_with(&active.wanted.within)
        })
    }
}

/// Distributions that are kept: of more, one that is done is forgotten, or the oldest one.
const MOST: usize = 64;
/// Objects and bodies that are looked at in one call.
const AT_ONCE: usize = 1_000;
/// Pause between two rounds.
const PAUSE: Duration = Duration::from_millis(500);
/// The pause for each item of a round: so rounds take a twentieth of a processor at most.
const PAUSE_PER_ITEM: Duration = Duration::from_micros(10);

impl Active {
    /// Lists some more objects.
    fn list_some<'a>(&mut self, objects: impl Iterator<Item = (&'a Path, &'a Version)>) {
        let mut count = 0;
        for (path, version) in objects.take(AT_ONCE) {
            count += 1;
            let Version { sequence, content } = *version;
            self.items.push(Item { path: path.clone(), sequence, size: content.size });
            // A newer one is not of that state.
            self.bytes += if sequence <= self.wanted.at { content.size.0 } else { 0 };
        }
        if count < AT_ONCE {
            let at = self.wanted.at;
            self.items.retain(|item| item.sequence <= at);
            self.items.shrink_to_fit();
            let count = u32::try_from(self.items.len()).unwrap_or(u32::MAX);
            for host in self.hosts.values_mut() {
                host.lacks = (0..count).collect();
            }
            (self.is_listed, self.is_checking) = (true, true);
        }
    }

    /// All replicas were checked.
    fn end_round(&mut self, now: LocalTime) {
        (self.turn, self.is_checking) = (0, false);
        if self.is_done() {
            self.count = self.items.len() as u64;
            self.items = Vec::new();
            return;
        }
        let items: usize = self.hosts.values().map(|host| host.lacks.len()).sum();
        let items = u32::try_from(items).unwrap_or(u32::MAX);
        self.next_round = now.plus(PAUSE.max(PAUSE_PER_ITEM.saturating_mul(items)));
    }

    fn is_done(&self) -> bool {
        self.is_listed && self.hosts.values().all(|host| host.done.is_some())
    }
}

impl Host {
    fn new(deadline: Option<LocalTime>, best: f64) -> Self {
        Host {
            lacks: Vec::new(),
            checked: 0,
            stay: 0,
            bytes: 0,
            missing: None,
            urgency: deadline.map(|deadline| Urgency::new(deadline, best)),
            was_urgent: false,
            next: 0,
            done: None,
            shows_since: None,
            reported: None,
        }
    }

    /// Bytes of the missing bodies have left for it since they were counted.
    fn observe(&mut self, now: LocalTime, sent: u64, is_connected: bool) {
        self.missing = self.missing.map(|missing| missing.saturating_sub(sent));
        if let (Some(urgency), Some(missing)) = (&mut self.urgency, self.missing) {
            urgency.observe(now, missing, is_connected);
        }
    }

    /// Its relay reports which commits have arrived. Of a commit that has not, its own report has the bytes that are
    /// missing, once it shows the state. Bytes that have not come before are no observation of a rate.
    fn observe_below(&mut self, now: LocalTime, known: &Known, shows: bool) {
        self.shows_since = self.shows_since.or(shows.then_some(now));
        let is_later = |at: LocalTime| self.shows_since.is_some_and(|since| since < at);
        let report = known.report.filter(|(at, _)| is_later(*at));
        let reported = report.map(|(at, report)| (at, report.stock.missing_and_pushed().0));
        let missing = match (self.missing, reported) {
            (Some(missing), Some((_, reported))) => missing.min(reported),
            (Some(missing), None) => missing,
            (None, _) => return,
        };
        self.missing = Some(missing);
        let Some(urgency) = &mut self.urgency else { return };
        match reported {
            Some((at, _)) if Some(at) != self.reported => {
                self.reported = Some(at);
                urgency.observe(at, missing, known.connected);
            }
            Some(_) if known.connected => {}
            _ => urgency.observe(now, missing, false),
        }
        urgency.decide(now, missing);
    }

    /// Checks some bodies; returns whether these were the last ones of the round.
    fn check_some(&mut self, items: &[Item], to_come: impl Fn(&Item) -> Option<u64>) -> bool {
        let end = self.lacks.len().min(self.checked + AT_ONCE);
        while self.checked < end {
            let number = self.lacks[self.checked];
            let item = &items[number as usize];
            if let Some(bytes) = to_come(item) {
                self.bytes += bytes;
                self.lacks[self.stay] = number;
                self.stay += 1;
            }
            self.checked += 1;
        }
        let is_last = end == self.lacks.len();
        if is_last {
            self.lacks.truncate(self.stay);
            self.missing = Some(core::mem::take(&mut self.bytes));
            (self.checked, self.stay, self.next) = (0, 0, 0);
        }
        is_last
    }
}

impl<P: Clone> Origin<P> {
    /// Observes from now on how a publication arrives at replicas. With a deadline, its bodies leave the background for
    /// the replicas that would be late otherwise.
    pub fn distribute(&mut self, now: Reading, wanted: Distribution) -> DistributionId {
        let all = &mut self.distributions;
        all.last.0 += 1;
        let best = |replica: &ReplicaId| all.best.get(replica).copied().unwrap_or(0.0);
        let host = |replica: &ReplicaId| (*replica, Host::new(wanted.deadline, best(replica)));
        let hosts = wanted.replicas.iter().map(host).collect();
        let active = Active {
            wanted,
            items: Vec::new(),
            bytes: 0,
            count: 0,
            is_listed: false,
            hosts,
            turn: 0,
            next_round: now.local,
            is_checking: false,
        };
        all.all.insert(all.last, active);
        let last = all.last;
        if all.all.len() > MOST {
            let over = all.all.iter().find(|(_, active)| active.is_done());
            let over = over.or_else(|| all.all.first_key_value()).map(|(id, _)| *id);
            over.into_iter().for_each(|id| self.end_distribution(id));
        }
        last
    }

    /// Forgets a distribution: what is left of it is sent in the background.
    pub fn end_distribution(&mut self, id: DistributionId) {
        let Some(active) = self.distributions.all.remove(&id) else { return };
        let replicas = active.hosts.into_keys();
        self.output.events.extend(replicas.map(Event::Urgency));
        self.list_urgent_below();
    }

    /// The progress of a distribution; none if it was ended.
    pub fn distribution(&self, now: Reading, id: DistributionId) -> Option<Progress> {
        let active = self.distributions.all.get(&id)?;
        let arrivals = active.hosts.iter().map(|(replica, host)| {
            let progress = self.progress(*replica);
            let missing = host.missing.map(Bytes);
            let of_urgency = |urgency: &Urgency| {
                let late = urgency.late_by(now.local, host.missing.unwrap_or(0));
                (urgency.is_urgent(), urgency.rate(now.local), late)
            };
            let (is_urgent, rate, late_by) =
                host.urgency.as_ref().map_or((false, None, None), of_urgency);
            Arrival {
                replica: *replica,
                is_connected: progress.is_some_and(|(_, is_connected)| is_connected),
                state: progress.map(|(state, _)| state),
                missing,
                files: host.lacks.len() as u64,
                is_urgent,
                rate,
                late_by: late_by.filter(|_| host.done.is_none()),
                done: host.done,
                has_all: host.done.is_some_and(|done| self.has_all_since(*replica, done)),
            }
        });
        let all = active
            .is_listed
            .then_some((Bytes(active.bytes), active.count.max(active.items.len() as u64)));
        let Distribution { at, deadline, .. } = &active.wanted;
        let (at, deadline) = (*at, *deadline);
        Some(Progress { at, deadline, all, arrivals: arrivals.collect() })
    }

    fn has_all_since(&self, replica: ReplicaId, done: LocalTime) -> bool {
        self.report(replica).is_some_and(|(at, report)| {
            let stock = report.stock;
            at >= done && (stock.valid_objects, stock.valid_bytes) == (stock.objects, stock.bytes)
        })
    }

    /// Whether a publication that would be late otherwise is sent to a replica, at normal priority. Meanwhile nothing
    /// else is pushed to it.
    pub fn is_urgent(&self, replica: ReplicaId) -> bool {
        let is_awake = || self.peers.get(&replica).is_some_and(|peer| !peer.rests);
        self.distributions.is_urgent(replica)
            || self.distributions.below.leads_to(replica) && is_awake()
    }

    /// When [`go_on`](Origin::go_on) has to be called for the next round of a distribution.
    pub fn distribution_timeout(&self) -> Option<LocalTime> {
        let waiting = self.distributions.all.values().filter(|active| !active.is_done());
        waiting.map(|active| active.next_round).min()
    }

    /// Whether bodies are being listed or checked.
    pub(super) fn is_distributing(&self) -> bool {
        let mut all = self.distributions.all.values();
        all.any(|active| !active.is_done() && (!active.is_listed || active.is_checking))
    }

    /// Lists and checks some bodies of a distribution.
    pub(super) fn distribute_some(&mut self, now: Reading) {
        let is_due = |active: &Active| active.is_checking || active.next_round <= now.local;
        let mut all = self.distributions.all.iter();
        let next =
            all.find(|(_, active)| !active.is_done() && (!active.is_listed || is_due(active)));
        let Some(id) = next.map(|(id, _)| *id) else { return };
        let Some(mut active) = self.distributions.all.remove(&id) else { return };
        if active.is_listed {
            active.is_checking = true;
            self.check_some(now, &mut active);
            if active.is_done() {
                active.end_round(now.local);
            }
        } else {
            let within = active.wanted.within.clone();
            let from = match active.items.last() {
                Some(item) => Bound::Excluded(item.path.as_bytes()),
                None => Bound::Included(&within[..]),
            };
            let objects = self.state.image.objects.range::<[u8], _>((from, Bound::Unbounded));
            let last = objects.take_while(|(path, _)| path.as_bytes().starts_with(&within));
            active.list_some(last);
        }
        let is_round_over = active.is_listed && !active.is_checking;
        self.distributions.all.insert(id, active);
        if is_round_over {
            self.list_urgent_below();
        }
    }

    /// Lists the replicas below relays for which a publication is urgent.
    fn list_urgent_below(&mut self) {
        let all = self.distributions.all.values().filter_map(|active| {
            let late = |(replica, host): (&ReplicaId, &Host)| {
                let is_urgent = host.urgency.as_ref().is_some_and(Urgency::is_urgent);
                let is_below = self.known_below(*replica).is_some();
                (is_urgent && is_below && host.done.is_none()).then_some(*replica)
            };
            let replicas: Vec<ReplicaId> = active.hosts.iter().filter_map(late).collect();
            let Distribution { at, within, .. } = &active.wanted;
            let urgent = Urgent { at: *at, within: within.clone(), replicas };
            (!urgent.replicas.is_empty()).then_some(urgent)
        });
        let all = all.collect();
        self.set_urgent_below(all);
    }

    /// Checks some bodies of the replica whose turn it is.
    fn check_some(&mut self, now: Reading, active: &mut Active) {
        let Active { items, hosts, turn, wanted, .. } = active;
        let Some((replica, host)) = hosts.iter_mut().nth(*turn) else {
            active.end_round(now.local);
            return;
        };
        let replica = *replica;
        let to_come = |item: &Item| {
            let has_arrived = self.has_arrived(replica, &item.path, item.sequence);
            (!has_arrived).then(|| self.to_come(replica, item))
        };
        if host.done.is_none() && !host.check_some(items, to_come) {
            return;
        }
        *turn += 1;
        if host.done.is_some() {
            return;
        }
        let progress = self.progress(replica);
        let shows = progress.is_some_and(|(state, _)| state >= wanted.at);
        if shows && host.lacks.is_empty() {
            host.done = Some(now.local);
        }
        if let Some(known) = self.known_below(replica) {
            host.observe_below(now.local, known, shows);
        } else {
            let sent = self.sent_of(replica, wanted);
            let is_connected = progress.is_some_and(|(_, is_connected)| is_connected);
            host.observe(now.local, sent, is_connected);
        }
        let Some(urgency) = &host.urgency else { return };
        self.distributions.best.insert(replica, urgency.best());
        // Also if it goes on: the replica may have reported bodies as missing.
        if host.was_urgent || urgency.is_urgent() {
            self.output.events.push_back(Event::Urgency(replica));
        }
        host.was_urgent = urgency.is_urgent();
    }

    /// The bytes of these bodies that have left for a replica, whose store does not have them so far.
    fn sent_of(&self, replica: ReplicaId, wanted: &Distribution) -> u64 {
        let Some(link) = self.peers.get(&replica).and_then(|peer| peer.link.as_ref()) else {
            return 0;
        };
        let sent = |(path, sequence, size): (&Path, Sequence, Bytes)| {
            let is_wanted = sequence <= wanted.at
                && path.as_bytes().starts_with(&wanted.within)
                && !self.has_arrived(replica, path, sequence);
            let part = link.in_part.as_ref();
            let part = part.filter(|part| (&part.path, part.sequence) == (path, sequence));
            if is_wanted { part.map_or(size.0, |part| part.sent.0.min(size.0)) } else { 0 }
        };
        link.pushed.all().map(sent).sum()
    }

    /// The bytes of a missing body that are to come: not those of an earlier transfer.
    fn to_come(&self, replica: ReplicaId, item: &Item) -> u64 {
        let link = self.peers.get(&replica).and_then(|peer| peer.link.as_ref());
        let is_new =
            |link: &Link| link.partial.is_empty() || link.pushed.has(&item.path, item.sequence);
        if link.is_none_or(is_new) {
            return item.size.0;
        }
        let version = self.state.image.objects.get(&item.path);
        let before =
            version.map_or(0, |version| self.partial_bytes(replica, &version.content.digest));
        item.size.0.saturating_sub(before)
    }

    /// This many bytes of a pushed body have left: the part of it that is not missing any more.
    pub fn handle_part_sent(&mut self, replica: ReplicaId, body: &Frame<BodyHeader>, sent: Bytes) {
        let (path, version) = (&body.message.path, body.message.version);
        let link = self.peers.get_mut(&replica).and_then(|peer| peer.link.as_mut());
        if let (Some(link), Some(version)) = (link, version)
            && link.session == body.session
        {
            let sequence = version.sequence;
            link.in_part = Some(InPart { path: path.clone(), sequence, sent });
        }
    }

    /// The next urgent body for a replica.
    pub(super) fn next_urgent(&mut self, replica: ReplicaId) -> Option<(Path, Version)> {
        let peer = self.peers.get_mut(&replica)?;
        for (items, host) in self.distributions.urgent(replica) {
            while let Some(number) = host.lacks.get(host.next) {
                host.next += 1;
                let Item { path, sequence, .. } = &items[*number as usize];
                let version = self.state.image.objects.get(path).copied();
                let version = version.filter(|version| version.sequence == *sequence);
                let (Some(version), Some(position)) = (version, self.ranking.position(path)) else {
                    continue;
                };
                let is_here = self.bodies.references.is_stored(&version.content.digest);
                if !is_here || !(peer.waiting.remove(position) || peer.aside.remove(position)) {
                    continue;
                }
                let link = peer.link.as_mut()?;
                if !link.demands.take_over(path, version.sequence) {
                    return Some((path.clone(), version));
                }
            }
        }
        None
    }

    /// Whether a pushed body has to make room for urgent ones.
    pub(super) fn gives_way(&self, replica: ReplicaId, path: &Path, at: Sequence) -> bool {
        let is_urgent = self.distributions.has_urgent(replica, path, at)
            || self.distributions.below.has(replica, path, at);
        self.is_urgent(replica) && !is_urgent
    }
}
