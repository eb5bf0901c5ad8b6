//! The integration tests of this crate, in one program so that it is linked once.

mod checker_against_search;
mod deadlines;
mod publication_scale;
mod scheduler_model;
