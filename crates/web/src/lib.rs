//! Prefetching for any web site, from spare capacity of server and network only (NPS).
//!
//! A reverse proxy stands in front of a site that knows nothing of it. It adds one script to the
//! site's pages; the script asks for hints, and fetches what they name when the page has loaded,
//! over a connection in the background. The papers are SSR §2, §3.1 and §5, and the HTTP case study
//! of TCP Nice §6.1.

#![forbid(unsafe_code)]

mod acme;
mod authentication;
pub mod munge;
pub mod nps;
pub mod policy;
pub mod protocol;
pub mod proxy;
pub mod script;
mod tls;
