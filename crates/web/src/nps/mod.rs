//! NPS as one (SSR §5): what becomes of each request that the proxy carries.
//!
//! | a request | what is done |
//! |---|---|
//! | for a page | its reply gets the script, if the visitor may have it; its offences bar its URL |
//! | with `X-Lull` | goes upstream as a prefetch, if the rules let it; the reply is kept by the browser, if they let that |
//! | below `/.lull/` | is answered here |
//!
//! [`Nps`] is a [`Site`] of the proxy. The rules are [`crate::policy`]'s, the rewriter is
//! [`crate::munge`]; this module asks them, reads the clock, and keeps what they need.

mod ahead;
mod demand;
mod guarded;
mod munged;
mod own;
mod robots;
mod who;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Instant, SystemTime};

use http::{HeaderValue, header, request};
use lull_cc::Timestamp;
use tokio::sync::watch;

use crate::policy::{self, Harmless, Policy};
use crate::proxy::{Connection, Decision, Fetcher, Metrics, Site};
use who::{Clients, Who};

/// What an owner can set.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Of the rules: harmless cookies, and what is said about URLs.
    pub rules: policy::Settings,
    /// The site's name, as it stands in the address bar. Requests for other hosts pass as they
    /// are. `None`: whatever name clients say, it is the same site.
    pub host: Option<HeaderValue>,
    /// Whether `X-Forwarded-For` and `X-Forwarded-Proto` are believed, as by the proxy.
    pub trust_forwarded: bool,
}

/// Prefetching for the site behind a proxy.
#[derive(Debug)]
pub struct Nps {
    shared: Arc<Shared>,
    end: watch::Sender<bool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What all requests share.
#[derive(Debug)]
struct Shared {
    settings: Settings,
    harmless: Harmless,
    policy: Mutex<Policy>,
    clients: Clients,
    begun: Instant,
}

impl Nps {
    /// Prefetching by these settings. Nothing is fetched ahead before the site's robots.txt is
    /// known, which is asked for when the proxy starts.
    pub fn new(settings: Settings) -> Self {
        let shared = Shared {
            harmless: settings.rules.harmless.clone(),
            policy: Mutex::new(Policy::new(settings.rules.clone())),
            clients: Clients::default(),
            begun: Instant::now(),
            settings,
        };
        Nps { shared: Arc::new(shared), end: watch::channel(false).0, thread: Mutex::default() }
    }

    /// Ends what runs beside the traffic.
    pub fn stop(&self) {
        self.end.send_replace(true);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Drop for Nps {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Site for Nps {
    fn started(&self, _: &Metrics, fetcher: Fetcher) {
        let (shared, mut end) = (Arc::clone(&self.shared), self.end.subscribe());
        let fetcher = match &self.shared.settings.host {
            Some(host) => fetcher.with_host(host.clone()),
            None => fetcher,
        };
        let beside = async move {
            tokio::select! {
                () = robots::keep(&shared, fetcher) => {}
                _ = end.wait_for(|end| *end) => {}
            }
        };
        let run = move || {
            if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build()
            {
                runtime.block_on(beside);
            }
        };
        let thread = thread::Builder::new().name("lull-web-site".to_owned()).spawn(run);
        // Without it robots.txt stays unknown, and nothing is fetched ahead.
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = thread.ok();
    }

    fn request(&self, head: &mut request::Parts, connection: &Connection) -> Decision {
        let shared = &self.shared;
        let is_marked = head.headers.contains_key(policy::MARK);
        if !shared.is_of_the_site(head) {
            return if is_marked { ahead::refused() } else { Decision::Forward };
        }
        let who = Who::of(head, connection, shared);
        if own::is_own(head.uri.path()) {
            own::answer(shared, head, who)
        } else if is_marked {
            ahead::admit(shared, head, who)
        } else {
            demand::watch(shared, head, who)
        }
    }
}

impl Shared {
    fn policy(&self) -> MutexGuard<'_, Policy> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time on a clock that nobody sets.
    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.begun.elapsed()
    }

    fn is_of_the_site(&self, head: &request::Parts) -> bool {
        let Some(name) = &self.settings.host else { return true };
        match head.uri.authority() {
            Some(authority) => name.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()),
            None => head
                .headers
                .get(header::HOST)
                .is_some_and(|host| host.as_bytes().eq_ignore_ascii_case(name.as_bytes())),
        }
    }
}

/// The time by which headers and logs go.
#[allow(clippy::disallowed_methods, reason = "the daemon reads the clock here, for all of NPS")]
fn wall() -> SystemTime {
    SystemTime::now()
}
