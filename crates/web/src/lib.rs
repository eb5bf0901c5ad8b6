//! Prefetching for any web site, with spare capacity of server and network only: the non-interfering prefetching
//! system (NPS) of *Safe Speculative Replication* (SSR).
//!
//! A reverse proxy is in front of a site that needs no changes. It adds one script to the site's pages. The
//! script asks for hints, and fetches the named URLs when the page has loaded, over a background connection.
//! The papers are SSR §2, §3.1 and §5, and the HTTP case study of TCP Nice §6.1.
//!
//! ```no_run
//! use lull_web::proxy::{Config, Listener, Server};
//!
//! let mut config = Config::new("http://127.0.0.1:8080".parse()?);
//! config.listen.push("127.0.0.1:0".parse()?);
//! // Without a `Site` it only forwards; `nps` has the one that adds hints.
//! let server = Server::start(config, None, Listener::new(|event| eprintln!("{event}")))?;
//! println!("{}", server.addresses()[0].address);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod authentication;
mod content_coding;
pub mod nps;
pub mod policy;
pub mod protocol;
pub mod proxy;
pub mod script;
pub mod script_insertion;
