//! The parts that the programs `lull` and `lull-lab` share: messages, arguments, log lines and access logs.
//!
//! Both programs only parse arguments and print. Their work is done in the other crates.
//!
//! ```
//! assert_eq!(lull_cli::text::count(1, "connection", "connections"), "1 connection");
//! // A terminal would obey control characters from a log.
//! assert_eq!(lull_cli::text::plain("a\u{1b}[2J"), "a\\u{1b}[2J");
//! ```

pub mod arguments;
pub mod help;
pub mod log;
pub mod logs;
pub mod message;
pub mod reference;
pub mod text;
