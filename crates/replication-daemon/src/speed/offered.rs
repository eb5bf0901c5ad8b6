//! Writes at fixed times, independent of the earlier ones.

use std::time::{Duration, Instant};

use lull_replication::origin::Refused;
use lull_replication::types::Sequence;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout_at};

use super::{SpeedError, TIMEOUT, write_of};
use crate::daemon::{OriginHandle, WriteError};

/// Time before the first write is due, so that all writers have started.
const AHEAD: Duration = Duration::from_millis(50);

/// The offered load of an origin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    /// Writes per second, of all writers together.
    pub(super) rate: u32,
    /// Writers that take turns, evenly spaced; none of them waits for an answer before its next write.
    pub(super) writers: u32,
    /// Bytes of each body.
    pub(super) size: usize,
    /// Objects that are written in turn.
    pub(super) objects: u64,
    /// For how long.
    pub(super) length: Duration,
    /// The number of the first write: no two numbers have the same body.
    pub(super) first: u64,
}

/// One write. Times count from the beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) due: Duration,
    pub(super) sent: Duration,
    pub(super) end: End,
}

/// Its result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    Acknowledged(Sequence, Duration),
    /// Too many waited for the disk.
    Refused,
    Unanswered,
}

impl Write {
    /// From its due time to its acknowledgement.
    pub(super) fn time(&self) -> Duration {
        match self.end {
            End::Acknowledged(_, at) => at.saturating_sub(self.due),
            End::Refused | End::Unanswered => TIMEOUT,
        }
    }

    /// How much later than due it was sent.
    pub(super) fn late(&self) -> Duration {
        self.sent.saturating_sub(self.due)
    }
}

/// All writes, by their due times.
#[derive(Debug)]
pub(super) struct Offered {
    /// From when on times count.
    pub(super) begun: Instant,
    pub(super) writes: Vec<Write>,
}

impl Offered {
    /// How many ended like this.
    pub(super) fn count(&self, is: impl Fn(&End) -> bool) -> u64 {
        self.writes.iter().filter(|write| is(&write.end)).count() as u64
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.count(|end| matches!(end, End::Acknowledged(..)))
    }
}

impl Offer {
    fn writes(&self) -> u64 {
        (f64::from(self.rate) * self.length.as_secs_f64()).round() as u64
    }

    fn due(&self, number: u64) -> Duration {
        Duration::from_secs_f64(number as f64 / f64::from(self.rate))
    }

    /// Makes the writes, and waits for their answers.
    pub(super) async fn make(self, handle: &OriginHandle) -> Result<Offered, SpeedError> {
        let begun = Instant::now() + AHEAD;
        let mut writers = JoinSet::new();
        for writer in 0..self.writers {
            writers.spawn(self.write(handle.clone(), u64::from(writer), begun));
        }
        let mut writes = Vec::new();
        while let Some(ended) = writers.join_next().await {
            writes.extend(ended.expect("no writer panics")?);
        }
        writes.sort_by_key(|write: &Write| write.due);
        Ok(Offered { begun, writes })
    }

    /// The loop of one writer.
    async fn write(
        self,
        handle: OriginHandle,
        writer: u64,
        begun: Instant,
    ) -> Result<Vec<Write>, SpeedError> {
        let own: Vec<u64> = (writer..self.writes()).step_by(self.writers as usize).collect();
        let unanswered = |number: &u64| {
            let due = self.due(*number);
            Write { due, sent: due, end: End::Unanswered }
        };
        let mut writes: Vec<Write> = own.iter().map(unanswered).collect();
        let mut under_way = JoinSet::new();
        for (place, number) in own.into_iter().enumerate() {
            sleep_until((begun + self.due(number)).into()).await;
            let handle = handle.clone();
            under_way.spawn(async move { (place, self.one(&handle, number, begun).await) });
            while let Some(ended) = under_way.try_join_next() {
                let (place, write) = ended.expect("no write panics");
                writes[place] = write?;
            }
        }
        let limit = begun + self.length + TIMEOUT;
        while let Ok(Some(ended)) = timeout_at(limit.into(), under_way.join_next()).await {
            let (place, write) = ended.expect("no write panics");
            writes[place] = write?;
        }
        Ok(writes)
    }

    async fn one(
        self,
        handle: &OriginHandle,
        number: u64,
        begun: Instant,
    ) -> Result<Write, SpeedError> {
        let sent = begun.elapsed();
        let transaction = write_of(handle, number % self.objects, self.first + number, self.size)?;
        let end = match handle.write(transaction).await {
            Ok(sequence) => End::Acknowledged(sequence, begun.elapsed()),
            Err(WriteError::Refused(Refused::Busy)) => End::Refused,
            Err(error) => return Err(error.into()),
        };
        Ok(Write { due: self.due(number), sent, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unanswered_write_counts_as_the_timeout() {
        let (due, sent) = (Duration::from_secs(1), Duration::from_secs(2));
        let of = |end| Write { due, sent, end };
        let answered = of(End::Acknowledged(Sequence(1), Duration::from_secs(4)));
        assert_eq!((answered.time(), answered.late()), (Duration::from_secs(3), due));
        for end in [End::Refused, End::Unanswered] {
            assert_eq!(of(end).time(), TIMEOUT);
        }
    }

    #[test]
    fn writers_take_turns_evenly() {
        let length = Duration::from_millis(1_500);
        let offer = Offer { rate: 100, writers: 7, size: 1, objects: 1, length, first: 0 };
        assert_eq!(offer.writes(), 150);
        assert_eq!(offer.due(149), Duration::from_millis(1_490));
    }
}
