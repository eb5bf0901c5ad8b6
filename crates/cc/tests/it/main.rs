//! The integration tests of this crate, in one program so that it is linked once.

mod bbr;
mod filler;
mod foreground;
mod ledbat;
mod lull;
mod nice;
mod path;
mod properties;
mod receive;
mod refinements;
mod round_trip_times;
mod tcp_lp;
