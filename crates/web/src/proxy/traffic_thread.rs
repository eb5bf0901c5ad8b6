//! State of a thread that carries traffic: its pool and counters, and what all threads share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use tokio::sync::{Notify, Semaphore};

use super::access_log::LogSender;
use super::acme::Challenges;
use super::idle_compression::IdleCompressor;
use super::io::Switch;
use super::limits::Gate;
use super::pool::{BUFFER_BYTES, MIN_HEADER_BYTES};
use super::proxy_config::Config;
use super::serving::CurrentServing;
use super::spool;
use super::streams::{H2_CONNECTION_WINDOW, H2_STREAM_WINDOW, Tasks};
use super::thread_counters::Counters;

/// The phase of the threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    /// Requests in progress are finished, no new ones are accepted.
    Draining,
    Ended,
}

/// The data of a thread for each request.
pub(crate) struct TrafficThread {
    pub(crate) config: Arc<Config>,
    pub(crate) counters: Arc<Counters>,
    /// Its number, from 0 on.
    pub(crate) number: usize,
    /// The sites and their upstreams.
    pub(crate) serving: CurrentServing,
    /// The answers to a certificate authority's challenges.
    pub(crate) challenges: Arc<Challenges>,
    /// The limits of connections, over all threads.
    pub(crate) gate: Arc<Gate>,
    /// Requests that may still go to the upstream, over all threads.
    pub(crate) upstream_room: Arc<Semaphore>,
    /// Slots for answers that are read before their clients take them.
    pub(crate) spools: Arc<Semaphore>,
    /// Compresses prefetched answers, if the system allows the thread.
    pub(crate) compressor: Option<IdleCompressor>,
    pub(crate) log: Option<LogSender>,
    pub(crate) switch: Arc<Switch>,
    pub(super) is_draining: AtomicBool,
    pub(super) drain: Notify,
    /// Connections that have become idle since free memory was returned to the system.
    pub(super) parked: AtomicU32,
    pub(super) http1: http1::Builder,
    pub(super) http2: http2::Builder<Tasks>,
}

/// Streams reset because of the client's own errors before the connection ends.
const H2_LOCAL_ERROR_RESETS: usize = 128;

/// The data that all threads share.
pub(crate) struct Common {
    pub(crate) config: Arc<Config>,
    pub(crate) challenges: Arc<Challenges>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) upstream_room: Arc<Semaphore>,
    pub(crate) log: Option<LogSender>,
    pub(crate) switch: Arc<Switch>,
    pub(crate) idle_per_thread: usize,
    pub(crate) compressor: Option<IdleCompressor>,
}

impl TrafficThread {
    /// It serves nothing at first.
    pub(crate) fn new(common: &Common, number: usize, counters: Arc<Counters>) -> Arc<Self> {
        let limits = &common.config.limits;
        let header_bytes = limits.header_bytes.max(MIN_HEADER_BYTES);
        let mut http1 = http1::Builder::new();
        // `client_timeouts` handles timeouts, without a timer per request.
        http1
            .header_read_timeout(None::<Duration>)
            .max_header_size(header_bytes)
            .max_buf_size(header_bytes.max(BUFFER_BYTES));
        let mut http2 = http2::Builder::new(Tasks);
        http2
            .enable_connect_protocol()
            .max_concurrent_streams(limits.h2_streams)
            .max_pending_accept_reset_streams(limits.h2_resets)
            .max_local_error_reset_streams(H2_LOCAL_ERROR_RESETS)
            .max_header_list_size(u32::try_from(header_bytes).unwrap_or(u32::MAX))
            .initial_stream_window_size(H2_STREAM_WINDOW)
            .initial_connection_window_size(H2_CONNECTION_WINDOW)
            // No pings: behind the bytes in the kernel of a yielding or slow connection, their answer takes
            // longer than a useful timeout. TCP and `client_timeouts` detect dead peers.
            .max_send_buf_size(BUFFER_BYTES);
        let timeouts = &common.config.timeouts;
        let idle = (common.idle_per_thread, timeouts.upstream_idle);
        let serving = CurrentServing::new(&counters, timeouts.body, idle);
        Arc::new(TrafficThread {
            config: Arc::clone(&common.config),
            counters,
            number,
            serving,
            challenges: Arc::clone(&common.challenges),
            gate: Arc::clone(&common.gate),
            upstream_room: Arc::clone(&common.upstream_room),
            spools: Arc::new(Semaphore::new(spool::MAX_ANSWERS)),
            compressor: common.compressor.clone(),
            log: common.log.clone(),
            switch: Arc::clone(&common.switch),
            is_draining: AtomicBool::new(false),
            drain: Notify::new(),
            parked: AtomicU32::new(0),
            http1,
            http2,
        })
    }
}
