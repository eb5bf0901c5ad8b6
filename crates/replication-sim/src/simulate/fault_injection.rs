//! Faults, and the final state once faults end.

use lull_cc::Bytes;
use lull_replication::Fault;
use lull_replication::message::{Refusal, Stock};
use lull_replication::types::{ReplicaId, Sequence};

use super::Situation;
use super::clock::MS;
use super::turns::Turns;
use super::world::{Event, Repair, World};

impl World {
    pub(super) fn inject_fault(&mut self) {
        if self.calm {
            return;
        }
        let delay = self.random_delay(110 * MS);
        self.after(delay, Event::Trouble);
        let replica = self.random.below(self.replicas.len() as u64) as usize;
        match self.random.below(28) {
            0..=3 => self.reset(replica),
            4..=6 => self.partition(replica),
            7..=9 => {
                self.replicas[replica].link.slow = (100 + self.random.below(500)) * MS;
                let length = (300 + self.random.below(900)) * MS;
                self.after(length, Event::Repair(Repair::Slow { replica }));
            }
            10..=11 => self.crash_soon(Some(replica)),
            12..=13 => self.crash_soon(None),
            14 => {
                self.origin.disk.full = true;
                self.mend_soon(150, Repair::OriginDisk);
            }
            15 => {
                self.replicas[replica].disk.full = true;
                self.mend_soon(200, Repair::ReplicaDisk { replica });
            }
            16 => {
                self.origin.disk.slow = true;
                self.mend_soon(400, Repair::OriginDisk);
            }
            17..=18 => {
                self.replicas[replica].disk.slow = true;
                self.mend_soon(400, Repair::ReplicaDisk { replica });
            }
            19..=20 => {
                for _ in 0..3 {
                    let host = &mut self.replicas[replica];
                    host.excused.extend(host.disk.corrupt(&mut self.random));
                }
            }
            21 => self.step_clock(replica),
            22..=23 => {
                for _ in 0..3 {
                    self.origin.disk.corrupt(&mut self.random);
                }
            }
            24 => self.back_up(),
            25 => self.stop_reading(replica),
            26 => {
                let length = (100 + self.random.below(1_200)) * MS;
                self.replicas[replica].link.sends_delayed_until = self.now + length;
            }
            _ => {
                for replica in 0..self.replicas.len() {
                    self.reset(replica);
                }
            }
        }
    }

    /// Nothing arrives at a replica or from it for a while.
    fn partition(&mut self, replica: usize) {
        // Sometimes long enough for the log to pass.
        let most = if self.random.below(4) == 0 { 2_500 } else { 700 };
        let length = self.random.below(most) * MS;
        self.replicas[replica].link.cut_until = self.now + length;
        self.situations.add(Situation::Partition);
    }

    /// Repairs a fault within so many milliseconds.
    fn mend_soon(&mut self, most: u64, repair: Repair) {
        let length = self.random.below(most) * MS;
        self.after(length, Event::Repair(repair));
    }

    /// The wall clock of the origin or of a replica is set.
    fn step_clock(&mut self, replica: usize) {
        let by = self.random.below(4_000 * MS) as i64 - 2_000 * MS as i64;
        self.situations.add(Situation::ClockStepped);
        if self.random.below(2) == 0 {
            self.origin.clock.step(by);
        } else {
            self.replicas[replica].clock.step(by);
        }
    }

    /// Copies the disk of the origin, once in a run.
    fn back_up(&mut self) {
        if self.origin.backup.is_none() {
            let mut backup = self.origin.disk.clone();
            backup.crash(&mut self.random);
            self.origin.backup = Some(backup);
        }
    }

    /// A replica reads nothing from its connection, though it stays open.
    fn stop_reading(&mut self, replica: usize) {
        let link = &mut self.replicas[replica].link;
        if let (Some(machine), Some(connection)) = (&self.origin.machine, link.at_origin)
            && link.ignores_messages_on.is_none()
        {
            link.ignores_messages_on = Some((connection, machine.last().sequence));
            // Beyond most of these it considers the origin dead.
            let length = (200 + self.random.below(700)) * MS;
            self.after(length, Event::Repair(Repair::Deaf { replica }));
        }
    }

    /// It reads again.
    fn resume_reading(&mut self, replica: usize) {
        let link = &mut self.replicas[replica].link;
        let (Some((connection, told)), Some(machine)) =
            (link.ignores_messages_on.take(), &self.origin.machine)
        else {
            return;
        };
        if link.at_origin == Some(connection) && link.at_replica == Some(connection) {
            let (last, after) = (machine.last().sequence, machine.image().log_after());
            self.situations.count(Situation::TookNothing, last.0 - told.0);
            self.situations.count(Situation::PassedByLog, after.0.saturating_sub(told.0));
        }
        self.pump_origin();
        if let Some(relay) = self.replicas[replica].parent {
            self.pump_relay(relay);
        }
    }

    fn reset(&mut self, replica: usize) {
        let link = &self.replicas[replica].link;
        let (Some(connection), at_origin) = (link.at_replica, link.at_origin) else { return };
        self.situations.add(Situation::Reset);
        let delay = self.random_delay(20 * MS);
        self.after(delay, Event::DownAtReplica { replica, connection });
        if let Some(connection) = at_origin {
            let delay = self.random_delay(100 * MS);
            self.after(delay, Event::DownAtOrigin { replica, connection });
        }
        // Messages in flight from now on are lost with it.
        self.replicas[replica].link.dead = connection;
    }

    /// A crash at any moment; every other one of a machine with a busy disk.
    fn crash_soon(&mut self, replica: Option<usize>) {
        if self.random.below(2) == 0 {
            match replica {
                Some(replica) => self.replicas[replica].disk.slow = true,
                None => self.origin.disk.slow = true,
            }
        }
        let delay = self.random_delay(30 * MS);
        self.after(delay, Event::Crash { replica });
    }

    pub(super) fn crash(&mut self, replica: Option<usize>) {
        match replica {
            _ if self.calm => {}
            Some(replica) => self.crash_replica(replica),
            None => self.crash_origin(),
        }
    }

    pub(super) fn crash_replica(&mut self, replica: usize) {
        let Some(mut machine) = self.replicas[replica].machine.take() else { return };
        self.situations.add(Situation::ReplicaCrashed);
        self.situations.of_replica(&machine.take_counters(), self.origin.config.strategy);
        if self.options.fault == Some(Fault::RestartThatGoesBack) {
            self.replicas[replica].before = Some(Box::new(machine));
        }
        let damage = self.replicas[replica].disk.crash(&mut self.random);
        self.replicas[replica].disk.slow = false;
        self.situations.count(Situation::LostWrite, u64::from(damage.lost));
        self.situations.count(Situation::TornBody, u64::from(damage.torn));
        self.forget_timers_of_replica(replica);
        self.stop_relay(replica);
        let link = &mut self.replicas[replica].link;
        link.at_replica = None;
        link.welcomed = false;
        if let Some(connection) = link.at_origin {
            let delay = self.random_delay(100 * MS);
            self.after(delay, Event::DownAtOrigin { replica, connection });
        }
        let left = self.clients.replica_crashed(replica);
        self.restart_sessions(left);
        let delay = self.random_delay(120 * MS);
        self.after(delay, Event::StartReplica { replica });
    }

    pub(super) fn crash_origin(&mut self) {
        let Some(mut machine) = self.origin.machine.take() else { return };
        self.situations.add(Situation::OriginCrashed);
        self.situations.of_origin(&machine.take_counters());
        for replica in 0..self.replicas.len() {
            let waiting = machine.waiting(ReplicaId(replica as u32));
            self.situations.count(Situation::QueueLost, waiting);
        }
        let before = self.origin.disk.image.last().sequence;
        let damage = self.origin.disk.crash(&mut self.random);
        self.origin.disk.slow = false;
        self.take_log();
        let survived = damage.survived && self.origin.disk.image.last().sequence > before;
        self.situations.count(Situation::Unacknowledged, u64::from(survived));
        self.situations.count(Situation::LostWrite, u64::from(damage.lost));
        self.situations.count(Situation::TornBody, u64::from(damage.torn));
        self.forget_timers_of_origin();
        self.clients.origin_crashed();
        for replica in self.served_by(None) {
            let link = &mut self.replicas[replica].link;
            link.at_origin = None;
            link.at_origin_before.clear();
            link.demanded = Turns::default();
            if let Some(connection) = link.at_replica {
                let delay = self.random_delay(50 * MS);
                self.after(delay, Event::DownAtReplica { replica, connection });
            }
        }
        let delay = self.random_delay(150 * MS);
        self.after(delay, Event::StartOrigin);
    }

    pub(super) fn repair(&mut self, repair: Repair) {
        match repair {
            Repair::Slow { replica } => self.replicas[replica].link.slow = 0,
            Repair::Deaf { replica } => self.resume_reading(replica),
            Repair::OriginDisk => {
                self.origin.disk.full = false;
                self.origin.disk.slow = false;
            }
            Repair::ReplicaDisk { replica } => {
                self.replicas[replica].disk.full = false;
                self.replicas[replica].disk.slow = false;
            }
        }
    }

    /// Faults and writes end: all replicas reach the end of the log, and no read keeps waiting.
    pub(super) fn end_faults(&mut self) {
        self.calm = true;
        self.repair(Repair::OriginDisk);
        for replica in 0..self.replicas.len() {
            self.repair(Repair::Slow { replica });
            self.repair(Repair::ReplicaDisk { replica });
            self.repair(Repair::Deaf { replica });
            self.replicas[replica].link.cut_until = self.now;
            self.replicas[replica].link.sends_delayed_until = self.now;
        }
        // Long enough for messages in flight, for restarts, and for the detection of silent links.
        let until = self.now + 6_000 * MS;
        while self.step(until) {}
        self.now = until;
        for host in &mut self.replicas {
            if let Some(machine) = &mut host.machine {
                self.situations.of_replica(&machine.take_counters(), self.origin.config.strategy);
            }
        }
        if let Some(machine) = &mut self.origin.machine {
            self.situations.of_origin(&machine.take_counters());
        }
        if self.options.fault.is_none() {
            self.expect_quotas();
            self.expect_rest();
        }
    }

    /// No replica stays beyond its quota. It may exceed it for a moment, when a body that a read waits for
    /// has arrived, until an evicted one is deleted.
    fn expect_quotas(&mut self) {
        let mut beyond: Vec<usize> = (0..self.replicas.len()).collect();
        let until = self.now + 1_000 * MS;
        loop {
            beyond.retain(|at| self.is_beyond_quota(*at));
            if beyond.is_empty() || !self.step(until) {
                break;
            }
        }
        let describe = |at| format!("replica {at} keeps more than its quota");
        self.stuck.extend(beyond.into_iter().map(describe));
    }

    fn is_beyond_quota(&self, replica: usize) -> bool {
        let host = &self.replicas[replica];
        let kept = host.machine.as_ref().map(|machine| machine.bytes());
        host.config.quota.is_some_and(|quota| kept > Some(quota))
    }

    fn expect_rest(&mut self) {
        let Some(origin) = &self.origin.machine else {
            self.stuck.push("the origin did not start again".to_owned());
            return;
        };
        let last = origin.last();
        let mut stuck = Vec::new();
        let all = origin.image().objects.values().map(|version| version.content.size.0).sum();
        if origin.bytes() != Bytes(all) {
            stuck.push(format!("the origin has {all} bytes, not {:?}", origin.bytes()));
        }
        for (at, host) in self.replicas.iter().enumerate() {
            let Some(machine) = &host.machine else {
                stuck.push(format!("replica {at} did not start again"));
                continue;
            };
            let here = machine.image().position;
            if here != Some(last) {
                stuck.push(format!("replica {at} is at {here:?} of {last:?}"));
            }
            let theirs = &origin.image().objects;
            let ours = machine.image().objects.iter();
            if !ours.map(|(path, object)| (path, &object.version)).eq(theirs) {
                stuck.push(format!("replica {at} has other objects than the origin"));
            }
            let mut stock = Stock::default();
            let only: Vec<_> = machine.patterns().map(|(pattern, _)| pattern).collect();
            for (path, object) in &machine.image().objects {
                let size = object.version.content.size.0;
                stock.objects += 1;
                stock.bytes.0 += size;
                stock.valid_objects += u64::from(object.valid);
                stock.valid_bytes.0 += if object.valid { size } else { 0 };
                let is_left = !only.is_empty() && !only.iter().any(|one| one.matches(path));
                if is_left && !object.valid {
                    (stock.unsubscribed_objects, stock.unsubscribed_bytes.0) =
                        (stock.unsubscribed_objects + 1, stock.unsubscribed_bytes.0 + size);
                }
            }
            if machine.stock() != stock {
                stuck.push(format!("replica {at} has {stock:?}, not {:?}", machine.stock()));
            }
            let valid = machine.image().objects.iter().filter(|(_, object)| object.valid);
            for (path, object) in valid {
                if !host.disk.holds(&object.version.content.digest) {
                    stuck.push(format!(
                        "replica {at} says it has the body of `{path}`, and has not"
                    ));
                }
            }
            if let Some(error) = self.lease_of(at) {
                stuck.push(error);
            }
        }
        let waiting = self.waiting_since(self.now - 1_000 * MS);
        if waiting > 0 {
            stuck.push(format!("{waiting} reads wait for over a second"));
        }
        stuck.extend(self.clients.unarrived(origin, &self.replicas));
        self.stuck.extend(stuck);
    }

    /// The problem of a replica that is connected and undisturbed, and would not answer.
    fn lease_of(&self, replica: usize) -> Option<String> {
        let host = &self.replicas[replica];
        let staleness = host.machine.as_ref()?.staleness(self.local(replica));
        let fresh = staleness.is_some_and(|staleness| staleness < host.config.staleness.connected);
        (!fresh).then(|| format!("replica {replica} would not answer: stale by {staleness:?}"))
    }

    /// The origin is restored from an earlier backup. Replicas with a later state must notice, also when the
    /// origin has written past them.
    pub(super) fn restore(&mut self) {
        let Some(backup) = self.origin.backup.take() else { return };
        if self.options.fault.is_some() {
            return;
        }
        let ahead: Vec<Sequence> = self
            .replicas
            .iter()
            .map(|host| host.machine.as_ref().map_or(Sequence::ZERO, |machine| machine.received()))
            .collect();
        let incarnation = self.origin.disk.image.incarnation;
        let restored = backup.image.last().sequence;
        self.origin.machine = None;
        self.origin.disk = backup;
        self.origin.disk.image.incarnation = incarnation;
        self.forget_timers_of_origin();
        self.clients.origin_crashed();
        self.clients.drop_waits();
        for replica in self.served_by(None) {
            self.replicas[replica].link.at_origin = None;
            self.replicas[replica].link.at_origin_before.clear();
            self.replicas[replica].link.demanded = Turns::default();
            let connection = self.replicas[replica].link.at_replica;
            if let Some(connection) = connection {
                self.after(0, Event::DownAtReplica { replica, connection });
            }
            // No replica connects before the origin has written again.
            self.replicas[replica].link.cut_until = self.now + 500 * MS;
        }
        self.after(0, Event::StartOrigin);
        let furthest = ahead.iter().max().copied().unwrap_or_default();
        let past = self.random.below(2) == 0;
        let until = self.now + 2_000 * MS;
        for _ in 0..20_000 {
            let last = self.origin.machine.as_ref().map(|machine| machine.last().sequence);
            let behind = last.is_some_and(|last| last <= furthest);
            let mut direct = self.replicas.iter().filter(|host| host.parent.is_none());
            let early = direct.all(|host| host.link.cut_until > self.now);
            if past && behind && early && self.clients_idle() {
                self.submit();
            }
            if !self.step(until) {
                break;
            }
        }
        for (at, received) in ahead.into_iter().enumerate() {
            let Some(machine) = &self.replicas[at].machine else { continue };
            match machine.refusal() {
                Some(Refusal::Ahead(_)) => self.situations.add(Situation::BackupBehind),
                Some(Refusal::Diverged) => self.situations.add(Situation::BackupDiverged),
                // A rejected relay serves no replica.
                _ if self.replicas[at].parent.is_some() && !machine.is_connected() => {}
                _ if received > restored => {
                    self.stuck.push(format!("replica {at} took an old backup for its origin"));
                }
                _ => {}
            }
        }
    }
}
