//! The integration tests of this crate, in one program so that it is linked once.
#![forbid(unsafe_code)]

mod acme;
mod attacks;
mod beside;
mod browser;
mod browsing;
mod common;
mod ending;
mod faults;
mod figures;
mod hinting;
mod http2_upstream;
mod idle_connections;
mod origin;
mod passing;
mod prefetching;
mod real;
mod rules;
mod site;
mod sites;
mod worker;
mod working;
