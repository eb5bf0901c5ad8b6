//! Lull: one window for all background connections of a host on one path.
//!
//! Nice (OSDI 2002) gives each connection a window of its own, so that many connections together
//! interfere like many, and each looks for spare capacity alone. Here the connections of a host that
//! share a path share its state, a [`Path`]: round-trip time, capacity, and one window. One
//! connection, the leader, carries the window; the others send a pair of packets now and then.
//!
//! ```text
//!            queue                 queue of others, at a large or a very small window; loss
//!   Start ──────────▶ Use ◀─────────────────────────────────────────────────────▶ Floor
//!   × 3/2 each        W: grows each round without a queue       a pair met no queue,
//!   round             queue, capacity reached: W ← capacity     and patience has passed
//!                     queue of others: W ← W/2
//! ```
//!
//! - A queue above the trigger is the background's own if the background itself sends at nine tenths of the
//!   highest rate that the path has shown. Otherwise others send, and the background yields.
//! - At the floor the host sends one pair in 200 packet times, whatever the number of connections.
//! - Connections of the same host that are not in the background are seen before any queue. When the first
//!   one begins, W ← W/4 and does not grow for four round-trip times. From then on, twice what they have sent
//!   lately is left to them. When they have ended, the floor ends.
//! - Where routers keep flows apart (RFC 8290), no queue shows others. A return begins with packets sent at
//!   once, which take twice as long there if others send.
//! - Pairs of one connection that always take longer, while others meet no queue, show a path of its own. The
//!   connection leaves.
//! - If all pairs of a floor meet a queue, the path may have become longer. A trial tells: the background's
//!   packets lengthen a queue, but not a path.
//! - The way back starts from what the path had room for before, so that it takes a few rounds.
//!
//! Times of a path never go back: an earlier time than the latest one counts as the latest one.
//!
//! The bound that replaces "never above Reno" (OSDI 2002, Theorem 1) for one shared window: all connections
//! of a path together have no more in flight than its window and a pair for each of them.

mod apart;
mod capacity;
mod delay;
mod fair_queueing;
mod flow;
mod growth;
mod host;
mod jitter;
mod longer_path;
mod member;
mod minimum_progress;
mod part;
mod path;

pub use flow::{Flow, SharedPath};
pub use host::HostTraffic;
pub use member::Member;
pub use part::Part;
pub use path::Path;
