//! Documents that clients request, from a log of requests or at random.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use core::time::Duration;

use lull_cc::{Rate, Timestamp};
use serde::{Deserialize, Serialize};

use super::{FlowSizes, Tcp};
use crate::random::Random;
use crate::topology::NodeId;

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Nanoseconds since the beginning of the run.
    pub at_nanos: u64,
    /// The client.
    pub client: u32,
    /// The length of the document.
    pub bytes: u64,
}

/// When documents are requested.
#[derive(Clone, Debug)]
pub enum Arrivals {
    /// At the times of the log, regardless of earlier documents.
    Logged(Vec<Request>),
    /// A client's first request at the time of the log. Each later one follows the end of its last document,
    /// after the gap between the two requests in the log. That gap is assumed to be the time to think.
    Think(Vec<Request>),
    /// At random: gaps are exponential, sizes are drawn from a distribution, and each document belongs to a
    /// new client.
    Poisson {
        /// When the first gap begins.
        start: Timestamp,
        /// When the last one ends.
        stop: Timestamp,
        /// The mean rate of requested documents, in bytes.
        rate: Rate,
        /// Their sizes.
        sizes: FlowSizes,
    },
}

/// Which documents share a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Connections {
    /// None: each has its own connection, which is closed after it (HTTP/1.0).
    #[default]
    PerDocument,
    /// All of a client, one after the other, and the connection stays open (HTTP/1.1).
    PerClient,
}

/// A source of documents.
#[derive(Clone, Debug)]
pub struct Documents {
    /// Servers and the hosts of clients: client n is at the pair n modulo their number.
    pub pairs: Vec<(NodeId, NodeId)>,
    /// How documents are sent.
    pub tcp: Tcp,
    /// Which of them share a connection.
    pub connections: Connections,
    /// When they are requested.
    pub arrivals: Arrivals,
}

/// Returns requests in order of time.
#[derive(Clone, Debug)]
pub(crate) enum Requests {
    Logged {
        requests: VecDeque<Request>,
    },
    Think {
        /// Requests that are due, by time and client.
        due: BinaryHeap<Reverse<(Timestamp, u32, u64)>>,
        /// The later requests of each client: time to think, and bytes.
        later: BTreeMap<u32, VecDeque<(Duration, u64)>>,
    },
    Poisson {
        next: Timestamp,
        stop: Timestamp,
        mean_gap: Duration,
        sizes: FlowSizes,
        client: u32,
        random: Random,
    },
}

impl Requests {
    pub(crate) fn new(arrivals: Arrivals, mut random: Random) -> Self {
        match arrivals {
            Arrivals::Logged(mut requests) => {
                // Stable: requests of one moment stay in the order of the log.
                requests.sort_by_key(|request| request.at_nanos);
                Requests::Logged { requests: requests.into() }
            }
            Arrivals::Think(mut requests) => {
                requests.sort_by_key(|request| request.at_nanos);
                Self::think(&requests)
            }
            Arrivals::Poisson { start, stop, rate, sizes } => {
                let mean_gap = rate.time_for(lull_cc::Bytes(sizes.mean() as u64));
                let next = start + random.exponential(mean_gap);
                Requests::Poisson { next, stop, mean_gap, sizes, client: 0, random }
            }
        }
    }

    fn think(requests: &[Request]) -> Self {
        let mut due = BinaryHeap::new();
        let mut later: BTreeMap<u32, VecDeque<_>> = BTreeMap::new();
        let mut last = BTreeMap::new();
        for &Request { at_nanos, client, bytes } in requests {
            match last.insert(client, at_nanos) {
                None => due.push(Reverse((Timestamp::from_nanos(at_nanos), client, bytes))),
                Some(before) => {
                    let thought = Duration::from_nanos(at_nanos - before);
                    later.entry(client).or_default().push_back((thought, bytes));
                }
            }
        }
        Requests::Think { due, later }
    }

    /// The time of the next known request.
    pub(crate) fn next_time(&self) -> Option<Timestamp> {
        match self {
            Requests::Logged { requests } => {
                requests.front().map(|request| Timestamp::from_nanos(request.at_nanos))
            }
            Requests::Think { due, .. } => due.peek().map(|Reverse((at, ..))| *at),
            Requests::Poisson { next, stop, .. } => (next < stop).then_some(*next),
        }
    }

    /// The next request at or before `now`: client and bytes.
    pub(crate) fn poll(&mut self, now: Timestamp) -> Option<(u32, u64)> {
        if self.next_time()? > now {
            return None;
        }
        match self {
            Requests::Logged { requests } => {
                requests.pop_front().map(|request| (request.client, request.bytes))
            }
            Requests::Think { due, .. } => {
                due.pop().map(|Reverse((_, client, bytes))| (client, bytes))
            }
            Requests::Poisson { next, mean_gap, sizes, client, random, .. } => {
                let bytes = sizes.draw(random);
                *client += 1;
                *next += random.exponential(*mean_gap);
                Some((*client - 1, bytes))
            }
        }
    }

    /// A client has received its document.
    pub(crate) fn handle_completed(&mut self, now: Timestamp, client: u32) {
        if let Requests::Think { due, later } = self
            && let Some((thought, bytes)) = later.get_mut(&client).and_then(VecDeque::pop_front)
        {
            due.push(Reverse((now + thought, client, bytes)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(at_nanos: u64, client: u32, bytes: u64) -> Request {
        Request { at_nanos, client, bytes }
    }

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    #[test]
    fn log_is_played_in_time_order() {
        let log = vec![request(20, 1, 100), request(10, 2, 200), request(20, 3, 300)];
        let mut requests = Requests::new(Arrivals::Logged(log), Random::new(0));
        assert_eq!(requests.next_time(), Some(at(10)));
        assert_eq!(requests.poll(at(9)), None);
        assert_eq!(requests.poll(at(10)), Some((2, 200)));
        assert_eq!(requests.poll(at(10)), None);
        assert_eq!(requests.poll(at(25)), Some((1, 100)));
        assert_eq!(requests.poll(at(25)), Some((3, 300)));
        assert_eq!(requests.next_time(), None);
    }

    #[test]
    fn thinking_client_requests_after_reading() {
        let log = vec![request(10, 1, 100), request(15, 2, 5), request(40, 1, 200)];
        let mut requests = Requests::new(Arrivals::Think(log), Random::new(0));
        assert_eq!(requests.poll(at(10)), Some((1, 100)));
        assert_eq!(requests.poll(at(15)), Some((2, 5)));
        assert_eq!(requests.next_time(), None, "the first document is under way");
        requests.handle_completed(at(1_000), 1);
        assert_eq!(requests.next_time(), Some(at(1_030)));
        assert_eq!(requests.poll(at(1_030)), Some((1, 200)));
        requests.handle_completed(at(2_000), 1);
        assert_eq!(requests.next_time(), None);
    }

    #[test]
    fn random_documents_have_their_rate() {
        let sizes: FlowSizes = "0 0\n1000 0.5\n3000 1\n".parse().unwrap();
        let arrivals = Arrivals::Poisson {
            start: Timestamp::ZERO,
            stop: at(1_000_000_000_000),
            rate: Rate::from_bytes_per_second(125_000),
            sizes,
        };
        let mut requests = Requests::new(arrivals, Random::new(5));
        let mut bytes = 0;
        while let Some((_, more)) = requests.poll(Timestamp::FAR_FUTURE) {
            bytes += more;
        }
        let ratio = bytes as f64 / 125e6;
        assert!((ratio - 1.0).abs() < 0.02, "{ratio} of the rate");
    }
}
