//! Shared code of Lull's tests.
//!
//! Some tests need a privilege or a kernel that not every machine has. Such a test begins with [`needs!`]. If
//! something is missing it passes, and reports its name and the reason of the skip:
//!
//! ```
//! // #[test]
//! fn shell_runs_a_program() {
//!     lull_testing::needs!(lull_testing::command("sh"), lull_testing::command("true"));
//!     let status = std::process::Command::new("sh").args(["-c", "true"]).status();
//!     assert!(status.is_ok_and(|status| status.success()));
//! }
//! shell_runs_a_program();
//! ```
//!
//! libtest hides the output of passing tests. So the name and the reason are also appended to the file in
//! `LULL_SKIPPED_FILE`; `make test` shows that list at its end, and with `CI=true` a list that is not empty
//! fails the run.
#![forbid(unsafe_code)]

mod bound;
mod copy;
mod generated;
mod namespace;
pub mod nats;
pub mod pipe;
mod port;
mod probe;
pub mod shared_trace;
mod skip;
pub mod trace;

pub use bound::bound;
pub use copy::PublicCopy;
pub use generated::assert_generated;
pub use namespace::enter_own_namespaces;
pub use port::free_port;
pub use probe::{Missing, bpf, command, fuse, root, user_namespaces};
pub use skip::{enclosing, skip};
