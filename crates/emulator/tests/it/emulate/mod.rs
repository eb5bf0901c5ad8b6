//! The emulator against this machine's kernel. Every run is short and bounded.

mod bulk;
mod links;
mod pairs;
mod shared;
mod start;
