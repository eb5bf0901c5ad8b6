//! A body whose pieces come from the parent and from neighbours.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use lull_cc::Bytes;
use lull_replication::exchange::{Exchange, Taken};
use lull_replication::message::Neighbour;
use lull_replication::origin::LONG;
use lull_replication::path::Path;
use lull_replication::time::LocalTime;
use lull_replication::types::{Digest, ReplicaId};
use lull_replication::wire::{Outline, PIECE};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

use crate::daemon::blocking;
use crate::daemon::clock::until;
use crate::daemon::replica::older::LocalPieces;
use crate::daemon::replica::{ReplicaEvent, Shared, lock};
use crate::store::StoreError;

/// A body of which pieces have to come.
pub(in crate::daemon::replica) struct PiecesToCome {
    pub(in crate::daemon::replica) path: Path,
    pub(in crate::daemon::replica) digest: Digest,
    pub(in crate::daemon::replica) size: u64,
    pub(in crate::daemon::replica) outline: Arc<Outline>,
    /// How many of its first pieces came in an earlier transfer.
    pub(in crate::daemon::replica) first: u32,
    pub(in crate::daemon::replica) local: Option<Arc<LocalPieces>>,
}

/// The exchange of a body, until its transfer ends.
///
/// Its pieces are written to a file without a name, from which they go to the body in order, and to neighbours. The last
/// piece is not exchanged: it ends the transfer from the parent.
pub(in crate::daemon::replica) struct Running {
    shared: Weak<Shared>,
    body: PiecesToCome,
    file: File,
    state: Mutex<State>,
    /// The receiver of the body has something to do.
    changed: Notify,
    /// A piece could not be written.
    is_full: AtomicBool,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

struct State {
    exchange: Exchange,
    /// The pieces in the file.
    is_stored: Vec<bool>,
    /// The neighbours that are asked.
    asked: BTreeMap<ReplicaId, (Neighbour, UnboundedSender<u32>)>,
}

/// The next step of the receiver.
#[derive(Debug, Default)]
pub(in crate::daemon::replica) struct Turn {
    /// Pieces that the parent is to be asked for.
    pub(in crate::daemon::replica) wanted: Vec<(u32, u32)>,
    /// Pieces that have not come, without the last one.
    pub(in crate::daemon::replica) left: u32,
}

impl Running {
    /// Of a body that has this many pieces to come, in a file without a name in the folder of the replica; none if there is
    /// too little to come, or no room for it twice.
    pub(super) async fn new(
        shared: &Arc<Shared>,
        body: PiecesToCome,
        neighbours: &[Neighbour],
    ) -> Option<Arc<Self>> {
        let count = u32::try_from(body.size.div_ceil(PIECE as u64)).ok()?;
        let own = lock(&shared.identity).replica();
        let is_here = |number| {
            number < body.first || body.local.as_ref().is_some_and(|local| local.has(number))
        };
        let all = neighbours.iter().map(|one| one.replica);
        let now = shared.clock.read().local;
        let exchange = Exchange::new(now, own, all, count.checked_sub(1)?, is_here);
        let to_come = Bytes(u64::from(exchange.left()) * PIECE as u64);
        if to_come <= LONG || !shared.bodies.has_room(Bytes(2 * to_come.0)) {
            return None;
        }
        let folder = shared.folder.clone();
        // Without it, all pieces come from the parent.
        let file = blocking(move || tempfile::tempfile_in(folder)).await?.ok()?;
        let (asked, is_stored) = (BTreeMap::new(), vec![false; count as usize]);
        let state = Mutex::new(State { exchange, is_stored, asked });
        let (changed, is_full, tasks) = Default::default();
        let shared = Arc::downgrade(shared);
        Some(Arc::new(Running { shared, body, file, state, changed, is_full, tasks }))
    }

    /// A neighbour is asked by a task, which gets the numbers of pieces.
    pub(super) fn add(&self, neighbour: Neighbour, numbers: UnboundedSender<u32>) {
        lock(&self.state).asked.insert(neighbour.replica, (neighbour, numbers));
    }

    pub(super) fn keep_task(&self, task: JoinHandle<()>) {
        lock(&self.tasks).push(task);
    }

    /// The task of a neighbour has ended.
    pub(super) fn handle_ended(&self, shared: &Shared, neighbour: Neighbour, why: Option<String>) {
        if self.drop_neighbour(neighbour.replica)
            && let Some(why) = why
        {
            self.report_dropped(shared, neighbour, why);
        }
        self.changed.notify_one();
    }

    fn report_dropped(&self, shared: &Shared, neighbour: Neighbour, why: String) {
        let (path, Neighbour { replica, address, .. }) = (self.body.path.clone(), neighbour);
        (shared.on_event)(ReplicaEvent::NeighbourDropped {
            neighbour: replica,
            address,
            path,
            why,
        });
    }

    pub(super) fn body(&self) -> &PiecesToCome {
        &self.body
    }

    /// Drops a neighbour. Returns whether it was not dropped before.
    fn drop_neighbour(&self, neighbour: ReplicaId) -> bool {
        let mut state = lock(&self.state);
        state.exchange.drop_neighbour(neighbour);
        state.asked.remove(&neighbour).is_some()
    }

    /// Drops the neighbours that the parent names no longer.
    pub(super) fn retain(&self, is_neighbour: impl Fn(&Neighbour) -> bool) {
        let gone: Vec<ReplicaId> = {
            let state = lock(&self.state);
            let gone = state.asked.values().filter(|(one, _)| !is_neighbour(one));
            gone.map(|(one, _)| one.replica).collect()
        };
        for one in gone {
            self.drop_neighbour(one);
        }
        self.changed.notify_one();
    }

    /// Waits until [`turn`](Running::turn) is to be called.
    pub(in crate::daemon::replica) async fn wait(&self, shared: &Shared) {
        let timeout = lock(&self.state).exchange.poll_timeout();
        tokio::select! {
            () = self.changed.notified() => {}
            () = until(&*shared.clock, timeout) => {}
        }
    }

    /// Pieces that have not come, without the last one.
    pub(in crate::daemon::replica) fn left(&self) -> u32 {
        lock(&self.state).exchange.left()
    }

    /// The next call of [`turn`](Running::turn) is due at once.
    pub(in crate::daemon::replica) fn wake(&self) {
        self.changed.notify_one();
    }

    /// Drops late neighbours, asks the others, and returns the wishes to the parent. One answer to it at a time.
    pub(in crate::daemon::replica) fn turn(&self, shared: &Shared) -> Turn {
        let now = shared.clock.read().local;
        let (late, turn) = {
            let mut state = lock(&self.state);
            let State { exchange, asked, .. } = &mut *state;
            let late = exchange.handle_timeout(now);
            let late: Vec<_> = late.iter().filter_map(|one| asked.remove(one)).collect();
            while let Some((replica, number)) = exchange.poll_ask(now) {
                let sent = asked.get(&replica).map(|(_, sender)| sender.send(number));
                if !matches!(sent, Some(Ok(()))) {
                    // Its task has ended.
                    exchange.drop_neighbour(replica);
                }
            }
            let wanted = if exchange.parent_owes() { Vec::new() } else { exchange.poll_wanted() };
            (late, Turn { wanted, left: exchange.left() })
        };
        for (neighbour, _) in late {
            self.report_dropped(shared, neighbour, "it is slow or silent".to_owned());
        }
        turn
    }

    /// The pieces from this one on that are here without a gap.
    pub(in crate::daemon::replica) fn end_of_those_here(&self, from: u32) -> u32 {
        let state = lock(&self.state);
        (from..).find(|number| !state.exchange.has(*number)).unwrap_or(from)
    }

    /// Whether a piece could not be written.
    pub(in crate::daemon::replica) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Writes a verified piece. Blocks. Returns whether that was possible.
    fn write(&self, number: u32, bytes: &[u8]) -> bool {
        let written = self.file.write_all_at(bytes, u64::from(number) * PIECE as u64).is_ok();
        if !written {
            self.is_full.store(true, Ordering::Relaxed);
            self.changed.notify_one();
        }
        written
    }

    fn note_stored(&self, state: &mut State, number: u32) {
        if let Some(is_stored) = state.is_stored.get_mut(number as usize) {
            *is_stored = true;
        }
    }

    /// A verified piece has come from the parent. Blocks.
    pub(in crate::daemon::replica) fn take_from_parent(
        &self,
        now: LocalTime,
        number: u32,
        bytes: &[u8],
    ) {
        if self.write(number, bytes) {
            let mut state = lock(&self.state);
            self.note_stored(&mut state, number);
            state.exchange.handle_from_parent(now, number);
            drop(state);
            self.note_piece();
        }
    }

    /// A piece has come in an earlier transfer: neighbours may get it, if it is right. Blocks.
    pub(in crate::daemon::replica) fn take_earlier(&self, number: u32, bytes: &[u8]) {
        if self.body.outline.has(number, bytes) && self.write(number, bytes) {
            self.note_stored(&mut lock(&self.state), number);
        }
    }

    /// A piece has come from a neighbour. Blocks.
    pub(super) fn take_from_neighbour(
        &self,
        now: LocalTime,
        from: ReplicaId,
        (number, bytes): (u32, &[u8]),
    ) -> Taken {
        let is_right = self.body.outline.has(number, bytes);
        let is_new = is_right && !lock(&self.state).exchange.has(number);
        if is_new && !self.write(number, bytes) {
            return Taken::Ignored;
        }
        let mut state = lock(&self.state);
        let taken = state.exchange.handle_from_neighbour(now, from, (number, is_right));
        if taken == Taken::New {
            self.note_stored(&mut state, number);
            drop(state);
            self.note_piece();
        }
        taken
    }

    fn note_piece(&self) {
        self.changed.notify_one();
        if let Some(shared) = self.shared.upgrade()
            && let Some(sharing) = &shared.sharing
        {
            sharing.note_news();
        }
    }

    /// A neighbour asks for a piece.
    pub(super) fn handle_asked(&self, from: ReplicaId, number: u32) {
        let mut state = lock(&self.state);
        state.exchange.admit(from);
        state.exchange.handle_asked(from, number);
        drop(state);
        // The piece may have to come from the parent now.
        self.changed.notify_one();
    }

    /// The next piece for a neighbour.
    pub(super) fn poll_answer(&self, to: ReplicaId) -> Option<u32> {
        lock(&self.state).exchange.poll_answer(to)
    }

    /// A piece, which was verified when it came, or is verified now; none if it is not here. Blocks.
    pub(in crate::daemon::replica) fn piece(
        &self,
        number: u32,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let is_stored = lock(&self.state).is_stored.get(number as usize) == Some(&true);
        if is_stored {
            // The last piece is never stored.
            let mut bytes = vec![0; PIECE];
            let read = self.file.read_exact_at(&mut bytes, u64::from(number) * PIECE as u64);
            return Ok(read.is_ok().then_some(bytes));
        }
        let local = self.body.local.as_ref().map_or(Ok(None), |local| local.read(number))?;
        Ok(local.filter(|bytes| self.body.outline.has(number, bytes)))
    }

    /// No piece is awaited from neighbours.
    pub(in crate::daemon::replica) fn stop_asking(&self) {
        lock(&self.tasks).drain(..).for_each(|task| task.abort());
        lock(&self.state).asked.clear();
    }

    /// The transfer has ended.
    pub(in crate::daemon::replica) fn end(&self) {
        self.stop_asking();
        if let Some(shared) = self.shared.upgrade()
            && let Some(sharing) = &shared.sharing
        {
            let mut all = lock(&sharing.running);
            if all.get(&self.body.digest).is_some_and(|one| core::ptr::eq(&**one, self)) {
                all.remove(&self.body.digest);
            }
        }
    }
}
