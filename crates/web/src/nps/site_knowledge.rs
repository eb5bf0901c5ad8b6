//! The knowledge of the site: its model, the lengths of its files, and its pages compared.

use std::sync::Arc;

use super::learner::Learner;
use super::lengths::Lengths;
use super::page_comparison::PageComparison;
use super::redirect_stubs::RedirectStubs;

/// Knowledge from requests and replies.
#[derive(Debug)]
pub(super) struct SiteKnowledge {
    pub(super) learner: Learner,
    pub(super) lengths: Lengths,
    pub(super) comparison: Arc<PageComparison>,
    pub(super) stubs: RedirectStubs,
}
