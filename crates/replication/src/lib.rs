//! The replication protocol of Lull, which is TRIP, the algorithm of *Safe Speculative Replication* (SSR) §3.2 and
//! §6. An origin takes all writes, replicas answer reads. All sessions see one order of writes, and no read is staler
//! than Δ.
//!
//! Both sides are pure state machines. Time comes in as a [`time::Reading`], effects go out as values, and equal
//! calls give equal results. `lull-replication-daemon` runs them over sockets and disks.
//!
//! | module | contents | paper |
//! |---|---|---|
//! | [`types`], [`path`](mod@path), [`time`] | positions in the log, versions, names, two kinds of time | §6.2 |
//! | [`message`], [`wire`] | the protocol as values and as bytes | §3.2, table I |
//! | [`origin`] | [`Origin`](origin::Origin): log, invalidations, one queue of bodies per replica | §6.2, §6.2.3.1 |
//! | [`replica`] | [`Replica`](replica::Replica): applies commits in a safe order, answers reads | §6.2.1, §6.2.2 |
//! | [`relay`] | [`Relay`](relay::Relay): lets a replica serve replicas below it | |
//! | [`exchange`] | pieces of a body from neighbours; not part of the daemons so far | |
//! | [`lane`] | which demanded bodies take turns | |
//! | [`merkle`] | the differences between two states | |
//! | [`subscription`] | the names whose bodies are pushed to a replica | |
//! | [`token`] | session tokens of clients that change replicas | §6.1 |
//! | [`checker`] | finds broken promises in a history of writes and reads | §6.1 |
//!
//! `docs/replication.md` lists the paper's rules, the decisions where it is silent, and the argument for Δ.
//!
//! ```
//! use lull_cc::Bytes;
//! use lull_replication::origin::{
//!     Config, Effect, Event, Image, Origin, Put, ReadsPerWriteAndByte, Transaction, TransactionId,
//! };
//! use lull_replication::time::Reading;
//! use lull_replication::types::{Digest, Metadata, Payload, Sequence};
//! use lull_replication::{BodyEffect, Path};
//!
//! let now = Reading::default();
//! let policy = Box::new(ReadsPerWriteAndByte);
//! let mut origin = Origin::recover(now, Config::default(), policy, Image::empty([7; 32]), []);
//!
//! // One file is written in one transaction.
//! let payload = Payload { digest: Digest::of(b"hello"), size: Bytes(5), bytes: b"hello".to_vec() };
//! let put = Put::Body(payload, Metadata::default());
//! let changes = [(Path::new("greeting.txt")?, put)].into();
//! origin.handle_transaction(now, TransactionId(1), Transaction { changes });
//!
//! // The origin asks for durable storage: first of the body, then of the log's entry.
//! while let Some(effect) = origin.poll_effect() {
//!     match effect {
//!         Effect::Body(BodyEffect::Store(payload)) => origin.handle_stored(now, &payload.digest, Ok(())),
//!         Effect::Body(BodyEffect::Drop(digest)) => origin.handle_dropped(now, &digest),
//!         Effect::Append(_) => origin.handle_appended(now, Ok(())),
//!     }
//! }
//! let acknowledged = Event::Acknowledged { transaction: TransactionId(1), sequence: Sequence(1) };
//! assert_eq!(origin.poll_event(), Some(acknowledged));
//! # Ok::<(), lull_replication::path::PathError>(())
//! ```

#![forbid(unsafe_code)]

mod body_references;
mod by_body;
pub mod checker;
pub mod exchange;
mod faults;
pub mod lane;
pub mod merkle;
pub mod message;
pub mod origin;
pub mod path;
pub mod relay;
pub mod replica;
pub mod subscription;
pub mod time;
pub mod token;
pub mod types;
pub mod wire;

pub use body_references::{BodyEffect, Pin};
pub use faults::Fault;
pub use path::Path;
