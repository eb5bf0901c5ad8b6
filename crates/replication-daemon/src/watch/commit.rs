//! Commits scan results.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::Ordering;

use lull_replication::origin::{Put, Transaction};
use lull_replication::path::Path;
use lull_replication::types::{Content, DiskFull, Kind, Payload};

use super::scan_result::{Changes, Depth, name_of};
use super::{Batch, Ended, Failed, Watcher};
use crate::daemon::{Clock, MachineClock};
use crate::source;
use crate::store::Body;

/// The maximum number of bytes of new bodies in one transaction: some of them are in memory until it is
/// written. Bodies that are stored already, as for renamed files, are not counted. Changes of one rename are
/// not split: larger ones are stored beforehand.
pub(super) const MAX_BYTES: u64 = 64 << 20;

impl Watcher {
    pub(super) fn commit(
        &mut self,
        batch: &mut Batch,
        changes: Changes,
        moved: &BTreeSet<Path>,
    ) -> Result<(), Failed> {
        let mut bytes = 0;
        let mut writes = BTreeMap::new();
        let mut new = Vec::new();
        // Changes without bodies come first, so that they are not split: sides of renames are among them.
        for (path, content) in changes {
            match content {
                None => drop(writes.insert(path, Put::Delete)),
                Some(content) if self.origin.has_body(&content.digest) => {
                    writes.insert(path, Put::Stored(content));
                }
                Some(content) => new.push((path, content)),
            }
        }
        // Then the other sides, if they have new bodies. If one transaction cannot bring all bodies, they are
        // in the store before it is written.
        new.sort_by_key(|(path, _)| !moved.contains(path));
        let of_moved = new.iter().filter(|(path, _)| moved.contains(path));
        let holds = of_moved.map(|(_, content)| content.size.0).sum::<u64>() > MAX_BYTES;
        for (path, content) in new {
            let is_moved = moved.contains(&path);
            if !is_moved && bytes + content.size.0 > MAX_BYTES && !writes.is_empty() {
                bytes = 0;
                self.write(batch, core::mem::take(&mut writes))?;
            }
            match self.stage(&path, &content)? {
                Some(payload) if is_moved && holds => {
                    self.runtime.block_on(batch.held.take(payload))?;
                    writes.insert(path, Put::Stored(content));
                }
                Some(payload) => {
                    bytes += content.size.0;
                    writes.insert(path, Put::Body(payload, content.metadata));
                }
                // It has changed or moved by now.
                None => {
                    let endless = batch.endless;
                    if self.grows(batch)? || batch.endless != endless {
                        return Err(Failed::Grown);
                    }
                    let (now, name) = (MachineClock.read().local, name_of(&path));
                    if is_moved && self.plan.put_off(now, &batch.names, &[name.clone()].into()) {
                        return Err(Failed::PutOff);
                    }
                    self.plan.failed(now, [(name, Depth::Whole)].into());
                }
            }
        }
        self.write(batch, writes)
    }

    fn write(&self, batch: &mut Batch, changes: BTreeMap<Path, Put<Body>>) -> Result<(), Failed> {
        if !changes.is_empty() {
            self.runtime.block_on(batch.held.stored())?;
            self.runtime.block_on(self.origin.write(Transaction { changes }))?;
        }
        Ok(())
    }

    /// A body found no space, and the origin does not know of it so far.
    fn full(&self, full: DiskFull) -> Failed {
        self.origin.disk_full();
        Failed::Again(Some(full.to_string()))
    }

    /// Reads a file once more, for the origin; none if it has changed.
    fn stage(&self, path: &Path, content: &Content) -> Result<Option<Payload<Body>>, Failed> {
        #[cfg(test)]
        if let Some(act) = self.events.between {
            act(&self.root.join(name_of(path)));
        }
        let mut stager = self.origin.bodies().stage();
        match content.metadata.kind {
            Kind::File => {}
            Kind::Link | Kind::Folder => {
                let link = source::link(&self.root.join(name_of(path)));
                let target = match content.metadata.kind {
                    Kind::Link => link.ok().flatten().map(|(target, _)| target),
                    _ => Some(Vec::new()),
                };
                let Some(target) = target else { return Ok(None) };
                stager.write(&target)?.map_err(|full| self.full(full))?;
                let payload = stager.finish()?.map_err(|full| self.full(full))?;
                return Ok(Some(payload).filter(|payload| payload.digest == content.digest));
            }
        }
        let mut failed = None;
        let take = |bytes: &[u8]| {
            failed = Some(match stager.write(bytes) {
                _ if self.stop.load(Ordering::Relaxed) => Ended::Stopped.into(),
                Ok(Ok(())) => return Ok(()),
                Ok(Err(full)) => self.full(full),
                Err(error) => error.into(),
            });
            Err(io::ErrorKind::Other.into())
        };
        let file = source::open(&self.root, &self.root.join(name_of(path)));
        let read = file.and_then(|file| source::read(file, take));
        if let Some(failed) = failed {
            return Err(failed);
        }
        let Ok(Some(_)) = read else { return Ok(None) };
        let payload: Payload<Body> = stager.finish()?.map_err(|full| self.full(full))?;
        Ok((payload.digest == content.digest).then_some(payload))
    }
}
