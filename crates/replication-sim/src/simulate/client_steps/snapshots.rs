//! Reads of past states.

use lull_replication::checker::{Name, Observation};
use lull_replication::path::Path;
use lull_replication::replica::{Entry, Holding, Outcome};

use super::super::Situation;
use super::super::clients::NAMES;
use super::super::world::World;

impl World {
    /// Reads a past state: now and then another one, otherwise the same again, which may no longer be
    /// available.
    pub(super) fn look_back(&mut self, session: usize) {
        let World { clients, replicas, more_random: random, situations, .. } = self;
        // A restored origin has others.
        if self.calm || random.below(4) > 0 {
            return;
        }
        let replica = clients.sessions[session].replica;
        let host = &replicas[replica];
        let Some(machine) = &host.machine else { return };
        let within = &mut clients.snapshots.within;
        let before = within.get(&session).filter(|(there, _)| *there == replica);
        let at = match before {
            Some((_, at)) if random.below(4) > 0 => *at,
            _ => {
                let states: Vec<_> = machine.states().map(|(at, _)| at).collect();
                // A replica without any previous state has none.
                let Some(last) = states.len().checked_sub(1) else { return };
                states[random.below(last as u64 + 1) as usize]
            }
        };
        within.insert(session, (replica, at));
        let object = random.below(NAMES.len() as u64) as usize;
        let path = &clients.paths[object];
        let folder = if random.below(2) == 0 { "" } else { "a" };
        let inner = Path::new(folder).ok();
        let told = (machine.entry_at(at, path), machine.names_at(at, inner.as_ref()));
        let (Some(entry), Some(names)) = told else {
            situations.add(Situation::SnapshotGone);
            within.remove(&session);
            return;
        };
        if at < machine.position() {
            situations.add(Situation::SnapshotRead);
        }
        let names = match &names {
            Outcome::Names(names) => &names[..],
            _ => &[],
        };
        let has = |name: &str| names.iter().any(|(other, _)| other == name.as_bytes());
        if has("c") && has("C") {
            situations.add(Situation::BothCases);
        }
        let mut seen = clients.listed(folder, names);
        let mut missing = None;
        let object = Name(object as u32);
        match entry {
            Outcome::Entry(Entry::File(version)) => {
                seen.push((object, clients.told(&version)));
                let digest = version.content.digest;
                if machine.holding(path, &version) == Holding::Here {
                    match host.disk.body(&digest) {
                        Some(body) => {
                            seen.push((object, Observation::Body(body.bytes)));
                            let present = machine.image().objects.get(path);
                            if present.is_none_or(|present| present.version != version) {
                                situations.add(Situation::SnapshotBody);
                            }
                        }
                        None => missing = Some(digest),
                    }
                }
            }
            _ => seen.push((object, Observation::Absent)),
        }
        clients.snapshots.seen.push((at, seen));
        if let Some(digest) = missing {
            self.with_replica(replica, |machine, now| machine.handle_missing(now, &digest));
        }
    }
}
