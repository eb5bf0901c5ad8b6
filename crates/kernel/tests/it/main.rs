//! The integration tests of this crate, in one program so that it is linked once.

mod admission;
mod conformance;
mod connection;
mod foreground;
mod mirror;
mod shared_lull;
mod shared_paths;
mod shared_receive;
mod shared_state;
mod virtual_queue;
