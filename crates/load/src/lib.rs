//! Load generators.
//!
//! - [`replay`] plays an access log against a web server, with clients that follow prefetch hints.
//! - [`readers`] plays an access log in the mounts of replicas, and edits files to time their arrival elsewhere.
//! - [`opens`] times `open` in a mount.
//! - [`torture`] breaks networks, disks, clocks and processes around an origin and its replicas.
//!
//! The servers, origins and replicas run as processes, like those of users.
//!
//! ```
//! use lull_load::replay::trace::Documents;
//!
//! // A replayed log names each document once.
//! let mut documents = Documents::default();
//! let page = documents.number("/index.html");
//! assert_eq!(documents.number("/index.html"), page);
//! assert_eq!(documents.all().len(), 1);
//! ```

mod http_client;
mod mounted;
mod numbered;
pub mod opens;
pub mod readers;
pub mod replay;
pub mod torture;
