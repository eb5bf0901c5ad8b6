//! NPS as one (SSR §5): what becomes of each request that the proxy carries.
//!
//! | a request | what is done |
//! |---|---|
//! | for a page | its reply gets the script, if the visitor may have it; its offences bar its URL |
//! | to the port of the service worker | the same; it is for nothing else |
//! | with `X-Lull`, or by the script's speculation rules | goes upstream as a prefetch, if the rules let it; the reply is kept by the browser, if they let that |
//! | with the ETag of a copy | is answered by 304, if its sender is anonymous; otherwise as if it had no such ETag |
//! | below `/.lull/` | is answered here: the script, hints, reports |
//!
//! [`Nps`] is a [`Site`] of the proxy. The rules are [`crate::policy`]'s, the rewriter is
//! [`crate::munge`]; this module asks them, reads the clock, and keeps what they need. What visitors do is
//! learned, and what they may want next ranked, by [`lull_speculate`]; its budget is kept by the
//! monitor.

mod access;
mod ahead;
mod awaited;
mod caps;
mod counts;
mod demand;
mod desk;
mod guarded;
mod hints;
mod history;
mod in_front;
mod keeping;
mod lengths;
mod monitor;
mod munged;
mod names;
mod navigations;
mod own;
mod ranking;
mod rates;
mod reasons;
mod rests;
mod robots;
mod room;
mod samples;
mod service_worker;
mod shown;
mod status;
mod stubs;
mod switch;
mod times;
mod who;
mod worths;

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Instant, SystemTime};

use http::uri::PathAndQuery;
use http::{HeaderValue, StatusCode, Uri, header, request};
use lull_cc::Timestamp;
use lull_speculate::model::Model;
use lull_speculate::scheduler::Parameters;
use tokio::sync::{Notify, watch};

use crate::policy::{self, Harmless, Policy};
use crate::proxy::{
    Address, Connection, Decision, Event, Fetcher, Listener, Metrics, Site, Totals, VisitLog,
};
use awaited::Awaited;
use caps::Caps;
use counts::Counts;
use desk::Desk;
use history::History;
use keeping::Keeping;
use lengths::Lengths;
use monitor::Monitor;
use names::Names;
use rates::Rates;
use rests::Rests;
use samples::Samples;
use service_worker::Workers;
use shown::Shown;
use stubs::Stubs;
use who::{Clients, Who};
use worths::Worths;

pub use access::Access;
pub use caps::ByteCaps;
pub use desk::Learn;
pub use keeping::Save;
pub use monitor::{KEPT_TIMES, MonitorSettings};
pub use names::{NoName, site_name};
pub use service_worker::ServiceWorker;

/// What an owner can set.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Of the rules: harmless cookies, and what is said about URLs.
    pub rules: policy::Settings,
    /// The site's names, as they stand in the address bar ([`site_name`]); what the proxy asks itself it
    /// asks by the first one. Requests for other hosts pass as they are. None: whatever name clients
    /// say, it is the same site.
    pub hosts: Vec<HeaderValue>,
    /// Whether `X-Forwarded-For` and `X-Forwarded-Proto` are believed, as by the proxy.
    pub trust_forwarded: bool,
    /// How many proxies stand before the one that comes to this one. Each adds an address to
    /// `X-Forwarded-For`, and the client's is the one before these.
    pub forwarded_before: usize,
    /// How the monitor works.
    pub monitor: MonitorSettings,
    /// How much is fetched ahead at most.
    pub caps: ByteCaps,
    /// What is worth less is not hinted.
    pub least_worth: LeastWorth,
    /// The share of visitors, of 10,000, who get no hints, to be compared with the others.
    pub held_back: u16,
    /// Have browsers fetch pages by speculation rules, where they can, instead of by `fetch`.
    pub speculation_rules: bool,
    /// Have browsers that need one fetch pages by a service worker, from where the proxy listens
    /// [in the background](crate::proxy::Config::listen_background).
    pub service_worker: Option<ServiceWorker>,
    /// Only predict, and count how often that was right: no script, no hints, no prefetches.
    pub shadow: bool,
    /// The kill switch: as long as this file is there, pages get no script, lists stay empty, and
    /// prefetches are refused.
    pub off_file: Option<PathBuf>,
    /// Who may look at the figures.
    pub access: Access,
}

/// What fetching something ahead is worth at least: seconds of waiting that it saves on average for each
/// megabyte that it costs.
///
/// It sets no pace, which is the budget's and Nice's to do (SSR §3.1.2 has no threshold); it spares
/// visitors and owners bytes that hardly anybody will use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeastWorth(pub f32);

impl Default for LeastWorth {
    /// Whoever waits for a megabyte waits for 0.8 s at 10 Mbit/s. In the background it may cost twenty times
    /// as much.
    fn default() -> Self {
        LeastWorth(0.04)
    }
}

impl LeastWorth {
    /// Whether a priority, in seconds a byte, comes up to it.
    fn is_met_by(self, priority: f32) -> bool {
        priority * 1e6 >= self.0
    }
}

/// Prefetching for the site behind a proxy.
#[derive(Debug)]
pub struct Nps {
    shared: Arc<Shared>,
    end: watch::Sender<bool>,
    /// The desk, until it begins to work.
    worker: Mutex<Option<desk::Beginning>>,
    /// Where clients come in.
    doors: Mutex<Vec<Address>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What all requests share.
#[derive(Debug)]
struct Shared {
    settings: Settings,
    harmless: Harmless,
    policy: Mutex<Policy>,
    /// Where what is barred is kept, and the server's times.
    barred: Mutex<Keeping>,
    times: Mutex<Keeping>,
    clients: Clients,
    rates: Rates,
    rests: Rests,
    shown: Shown,
    names: Names,
    desk: Desk,
    monitor: Monitor,
    caps: Caps,
    awaited: Awaited,
    worths: Worths,
    lengths: Lengths,
    samples: Samples,
    stubs: Stubs,
    workers: Workers,
    counts: Counts,
    history: History,
    metrics: OnceLock<Metrics>,
    listener: OnceLock<Listener>,
    /// The access log, until the end.
    visits: Mutex<Option<VisitLog>>,
    /// Whether the proxy listens on a public address.
    is_public: AtomicBool,
    is_told_of_cdn: AtomicBool,
    is_told_of_forwarded: AtomicBool,
    /// Whether the fetcher says that it came by HTTPS.
    is_secure: OnceLock<Arc<AtomicBool>>,
    /// Has robots.txt asked for at once.
    robots_again: Notify,
    /// Why robots.txt is not known, if it is not.
    robots_trouble: Mutex<Option<String>>,
    /// Why a prefetch was refused last.
    refusal: Mutex<Option<String>>,
    /// What was left out of a list last, or not kept when it was fetched ahead, and why.
    left_out: Mutex<Option<(String, String)>>,
    off: AtomicBool,
    begun: Instant,
}

impl Nps {
    /// Prefetching by these settings, and by what `model` has learned and goes on to learn; it is
    /// given to `save` when the proxy starts, every minute if it has learned something or was not
    /// kept the last time, and at the end. Nothing is fetched ahead before the site's robots.txt is known, which is asked for when the proxy
    /// starts.
    pub fn new(settings: Settings, model: Model, save: Option<Save>) -> Self {
        Nps::beginning(settings, desk::Begin::With(Box::new(model)), save)
    }

    /// The same with a model that is made when the proxy has started, while it serves. Until then lists
    /// are empty.
    pub fn learning(settings: Settings, learn: Learn, save: Option<Save>) -> Self {
        Nps::beginning(settings, desk::Begin::Learning(learn), save)
    }

    fn beginning(settings: Settings, begin: desk::Begin, save: Option<Save>) -> Self {
        let (desk, worker) = desk::desk(begin, save);
        let shared = Shared {
            harmless: settings.rules.harmless.clone(),
            policy: Mutex::new(Policy::new(settings.rules.clone())),
            barred: Mutex::default(),
            times: Mutex::default(),
            clients: Clients::default(),
            rates: Rates::default(),
            rests: Rests::default(),
            shown: Shown::default(),
            names: Names::default(),
            desk,
            monitor: Monitor::new(settings.monitor.clone()),
            caps: Caps::new(settings.caps),
            awaited: Awaited::default(),
            worths: Worths::default(),
            lengths: Lengths::default(),
            stubs: Stubs::default(),
            samples: Samples::new(&settings.rules.harmless),
            workers: Workers::default(),
            counts: Counts::default(),
            history: History::default(),
            metrics: OnceLock::new(),
            listener: OnceLock::new(),
            visits: Mutex::default(),
            is_public: AtomicBool::new(false),
            is_told_of_cdn: AtomicBool::new(false),
            is_told_of_forwarded: AtomicBool::new(false),
            is_secure: OnceLock::new(),
            robots_again: Notify::new(),
            robots_trouble: Mutex::new(Some("it was not asked for yet".to_owned())),
            refusal: Mutex::default(),
            left_out: Mutex::default(),
            off: AtomicBool::new(switch::is_there(settings.off_file.as_ref())),
            begun: Instant::now(),
            settings,
        };
        Nps {
            shared: Arc::new(shared),
            end: watch::channel(false).0,
            worker: Mutex::new(Some(worker)),
            doors: Mutex::default(),
            threads: Mutex::default(),
        }
    }

    /// The same, with what was barred within the last day by a process before, as `save` had it last; it is
    /// given more together with the model. What is none is passed over.
    #[must_use]
    pub fn keeping_bars(self, before: &[u8], save: Save) -> Self {
        self.shared.policy().take_bars(before, self.shared.now(), wall());
        *lock(&self.shared.barred) = Keeping::new(Some(save));
        self
    }

    /// The same, with what a process before has learned of the times of the site's server, as `save` had it last;
    /// it is given more together with the model. What is none is passed over.
    #[must_use]
    pub fn keeping_times(self, before: &[u8], save: Save) -> Self {
        self.shared.monitor.take_times(before);
        *lock(&self.shared.times) = Keeping::new(Some(save));
        self
    }

    /// Ends what runs beside the traffic, and saves the model, if there is one by then, and what is kept beside it.
    pub fn stop(&self) {
        // The log waits for its last line.
        *lock(&self.shared.visits) = None;
        let threads = std::mem::take(&mut *lock(&self.threads));
        if threads.is_empty() {
            return;
        }
        self.end.send_replace(true);
        self.shared.desk.end();
        for thread in threads {
            if !self.shared.desk.is_deaf(&thread) {
                // A thread that panicked has said so.
                let _ = thread.join();
            }
        }
        self.shared.keep_beside(true);
    }

    /// Runs something beside the traffic. What cannot run is missed: without the desk there are no
    /// hints, without robots.txt there are no prefetches.
    fn run(&self, name: &str, work: impl FnOnce() + Send + 'static) {
        if let Ok(thread) = thread::Builder::new().name(name.to_owned()).spawn(work) {
            lock(&self.threads).push(thread);
        }
    }
}

impl Drop for Nps {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Site for Nps {
    fn listens(&self, at: Address) {
        if !at.background {
            if access::is_public(at.address.ip()) {
                self.shared.is_public.store(true, Ordering::Relaxed);
            }
            lock(&self.doors).push(at);
        } else if let Some(of) = self.shared.settings.service_worker {
            self.shared.workers.listens_at(at, of);
        }
    }

    fn logs_to(&self, visits: VisitLog) {
        *lock(&self.shared.visits) = Some(visits);
    }

    fn reloaded(&self) {
        self.shared.monitor.choose();
        self.shared.robots_again.notify_one();
    }

    fn upstream_changed(&self) {
        self.shared.monitor.relearn();
    }

    fn ended(&self) {
        self.stop();
    }

    fn schedules(&self) -> Option<Parameters> {
        self.shared.settings.monitor.parameters.is_none().then(Parameters::default)
    }

    fn started(&self, metrics: &Metrics, fetcher: Fetcher, listener: &Listener) {
        let _ = self.shared.listener.set(listener.clone());
        // A proxy starts once.
        let _ = self.shared.metrics.set(metrics.clone());
        if self.shared.settings.speculation_rules {
            listener.tell(&Event::NotInBackground);
        }
        let name = self.shared.settings.hosts.first().and_then(|name| name.to_str().ok());
        if let Some(event) = access::told(&self.shared.settings.access, name, &lock(&self.doors)) {
            listener.tell(&event);
        }
        let _ = self.shared.is_secure.set(fetcher.secure());
        let (shared, mut end) = (Arc::clone(&self.shared), self.end.subscribe());
        let fetcher = match self.shared.settings.hosts.first() {
            Some(host) => fetcher.of_site(host.clone()),
            None => fetcher,
        };
        if let Some(worker) = lock(&self.worker).take() {
            let shared = Arc::clone(&shared);
            self.run("lull-web-desk", move || worker.run(&shared));
        }
        let beside = async move {
            tokio::select! {
                () = robots::keep(&shared, fetcher.clone()) => {}
                () = monitor::run(&shared, fetcher.clone()) => {}
                () = room::keep(&shared) => {}
                () = switch::watch(&shared) => {}
                () = keeping::beside(&shared) => {}
                () = history::keep(&shared) => {}
                _ = end.wait_for(|end| *end) => {}
            }
        };
        self.run("lull-web-site", move || {
            if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build()
            {
                runtime.block_on(beside);
            }
        });
    }

    fn logged_as(&self, head: &request::Parts, connection: &Connection) -> Option<IpAddr> {
        let (shared, path) = (&self.shared, head.uri.path());
        // Logs are learned from, and nobody has gone to any of these.
        let is_ahead = connection.is_always_background() || head.headers.contains_key(policy::MARK);
        let is_ours = if shared.is_of_the_site(head) {
            let by_rules = shared.settings.speculation_rules && policy::is_by_rules(&head.headers);
            by_rules || own::is_own(path)
        } else {
            own::FIGURES.contains(&path)
        };
        (!is_ahead && !is_ours).then(|| Who::of(head, connection, shared).address)
    }

    fn request(&self, head: &mut request::Parts, connection: &Arc<Connection>) -> Decision {
        let shared = &self.shared;
        if connection.is_always_background() {
            return service_worker::ahead(shared, head, connection);
        }
        let is_marked = head.headers.contains_key(policy::MARK);
        if !shared.is_of_the_site(head) {
            if let Some(figures) = own::by_another_name(shared, head) {
                return Decision::Answer(figures);
            }
            shared.note_other_host(head);
            return if is_marked { ahead::refused() } else { Decision::Forward };
        }
        shared.names.met();
        let who = Who::of(head, connection, shared);
        shared.look_for_https(who);
        if who.by_cache {
            shared.tell_of_cache(head);
        }
        let tags = policy::take_tags(&mut head.headers);
        if own::is_own(head.uri.path()) {
            own::answer(shared, head, who)
        } else if policy::is_confirmation(&head.headers) {
            ahead::confirm(shared, head, who, &tags)
        } else if is_marked {
            ahead::admit(shared, head, who, connection, &tags)
        } else if shared.settings.speculation_rules && policy::is_by_rules(&head.headers) {
            ahead::admit_by_rules(shared, head, who)
        } else if let Some(renewed) = ahead::renew(shared, head, who, &tags) {
            // Its script says that the page was shown, as with a copy for which nobody asked.
            renewed
        } else {
            shared.shown.goes_on(who.client, head, &shared.settings.rules.urls);
            demand::watch(shared, head, who)
        }
    }
}

impl Shared {
    fn policy(&self) -> MutexGuard<'_, Policy> {
        lock(&self.policy)
    }

    /// The time on a clock that nobody sets.
    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.begun.elapsed()
    }

    /// Whether nothing is to be fetched ahead: the kill switch is thrown.
    fn is_off(&self) -> bool {
        self.off.load(Ordering::Relaxed)
    }

    /// Whether pages get the script, and prefetches pass.
    fn is_active(&self) -> bool {
        !self.settings.shadow && !self.is_off()
    }

    /// Whether the upstream has room for what nobody waits for yet.
    fn has_room_ahead(&self) -> bool {
        self.metrics.get().is_none_or(Metrics::has_room_ahead)
    }

    /// What the proxy has counted, once it runs.
    fn totals(&self) -> Option<Totals> {
        self.metrics.get().map(Metrics::totals)
    }

    /// A page came out of the cache of a visitor. The access log has it if it was a copy that had been fetched ahead: without
    /// that the proxy would have been asked.
    fn log_visit(&self, head: &request::Parts, page: &str, who: Who) {
        if self.caps.shows(who.client, page, self.now())
            && let Some(visits) = &*lock(&self.visits)
        {
            visits.write(who.address, page, head);
        }
    }

    /// Tells the owner.
    fn tell(&self, event: &Event) {
        if let Some(listener) = self.listener.get() {
            listener.tell(event);
        }
    }

    /// Takes note that visitors come by HTTPS, perhaps to somebody in front: the site then wants to
    /// hear the same from us.
    fn look_for_https(&self, who: Who) {
        if let Some(is_secure) = self.is_secure.get()
            && who.secure
            && !is_secure.load(Ordering::Relaxed)
        {
            is_secure.store(true, Ordering::Relaxed);
        }
    }

    /// Takes note of what came of a prefetch that is not kept. A server that refuses it for want of room
    /// is asked for less, and its client for nothing, for a while.
    fn unkept(&self, who: Who, uri: &Uri, status: StatusCode, why: &str) {
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            self.monitor.refused(self.now());
            self.rests.begin(who.client, self.now());
        }
        *lock(&self.left_out) = Some((uri.path().to_owned(), why.to_owned()));
    }

    fn is_of_the_site(&self, head: &request::Parts) -> bool {
        let names = &self.settings.hosts;
        names.is_empty()
            || asked_host(head)
                .is_some_and(|host| names.iter().any(|name| names::is_same(name.as_bytes(), host)))
    }

    /// Tells once that nobody comes by a name of the site's.
    fn note_other_host(&self, head: &request::Parts) {
        if self.names.other(self.now()) {
            let host = String::from_utf8_lossy(asked_host(head).unwrap_or(b"?"));
            self.tell(&Event::NoneOfSite { host: host.chars().take(80).collect() });
        }
    }
}

/// The host that a request is for.
fn asked_host(head: &request::Parts) -> Option<&[u8]> {
    match head.uri.authority() {
        Some(authority) => Some(authority.as_str().as_bytes()),
        None => head.headers.get(header::HOST).map(HeaderValue::as_bytes),
    }
}

/// The path and query of a page.
fn whole(url: &Uri) -> &str {
    url.path_and_query().map_or("/", PathAndQuery::as_str)
}

/// Locks; a thread that panicked has said so, and left nothing half done that matters.
fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Numbers that nobody foresees, of 64 bits: a keyed hash of a counter.
#[derive(Debug, Default)]
struct Draws {
    key: RandomState,
    count: AtomicU64,
}

impl Draws {
    fn next(&self) -> u64 {
        self.key.hash_one(self.count.fetch_add(1, Ordering::Relaxed))
    }
}

/// The time by which headers and logs go.
#[allow(clippy::disallowed_methods, reason = "the daemon reads the clock here, for all of NPS")]
fn wall() -> SystemTime {
    SystemTime::now()
}
