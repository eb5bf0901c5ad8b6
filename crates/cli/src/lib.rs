//! The parts that the programs `lull` and `lull-lab` share: messages, arguments, log lines, access logs and replaced files.
//!
//! Both programs only parse arguments and print. Their work is done in the other crates.

pub mod arguments;
pub mod durable;
pub mod help;
pub mod log;
pub mod logs;
pub mod message;
pub mod reference;
pub mod text;
