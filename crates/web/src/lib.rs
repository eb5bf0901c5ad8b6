//! Prefetching for any web site, with spare capacity of server and network only (NPS).
//!
//! A reverse proxy is in front of a site that needs no changes. It adds one script to the site's pages. The
//! script asks for hints, and fetches the named URLs when the page has loaded, over a background connection.
//! The papers are SSR §2, §3.1 and §5, and the HTTP case study of TCP Nice §6.1.

#![forbid(unsafe_code)]

mod authentication;
pub mod munge;
pub mod nps;
pub mod policy;
pub mod protocol;
pub mod proxy;
pub mod script;
