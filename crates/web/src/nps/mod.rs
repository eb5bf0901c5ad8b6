//! NPS, the non-interfering prefetching system of SSR §5: how each request of the proxy is handled.
//!
//! | request | handling |
//! |---|---|
//! | for a page | its reply gets the script, if the visitor may have it; its offences bar its URL |
//! | to the port of the service worker | the same; it has no other use |
//! | with `X-Lull`, or by the script's speculation rules | goes upstream as a prefetch, if the rules let it; the reply is kept by the browser, if they let that |
//! | with the ETag of a copy | is answered by 304, if its sender is anonymous; otherwise as if it had no such ETag |
//! | below `/.lull/` | is answered here: the script, hints, reports |
//!
//! [`Nps`] is a [`Site`] of the proxy. The rules are in [`crate::policy`], the rewriter is [`crate::script_insertion`];
//! this module calls them, reads the clock, and keeps their state. [`lull_speculate`] learns from visits and
//! ranks the probable next ones; the monitor keeps its budget.

mod access;
mod awaited_prefetches;
mod backoff;
mod byte_caps;
mod cached_pages;
mod cdn;
mod clock;
mod counter;
mod counts;
mod demand;
mod distinct;
mod draws;
mod endpoints;
mod heads;
mod hint_priorities;
mod hints;
mod history;
mod kill_switch;
mod learner;
mod learner_worker;
mod lengths;
mod lock;
mod monitor;
mod navigations;
mod notices;
mod observed_body;
mod page_body;
mod page_comparison;
mod page_table;
mod payback;
mod persistence;
mod prefetch_body;
mod prefetch_limits;
mod prefetches;
mod prometheus;
mod rates;
mod reasons;
mod redirect_stubs;
mod replies;
mod requester;
mod robots;
mod saved_state;
mod select_hints;
mod service_worker;
mod settings;
mod share_link;
mod shared;
mod shared_cache;
mod sharing;
mod site_knowledge;
mod site_names;
mod site_rules;
mod status;
mod times;
mod upstream_state;
mod visitors;
mod worker_requests;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use http::request;
use lull_speculate::model::Model;
use lull_speculate::scheduler::Parameters;
use tokio::sync::watch;

use crate::policy;
use crate::proxy::{
    Address, Connection, Decision, Event, Fetcher, Listener, Metrics, Site, VisitLog,
};
use byte_caps::Caps;
use counts::Counts;
use history::History;
use learner::{Begin, LearnerStart};
use lengths::Lengths;
use lock::lock;
use monitor::{Monitor, MonitorContext};
use notices::Notices;
use page_comparison::PageComparison;
use payback::Payback;
use prefetch_limits::PrefetchLimits;
use redirect_stubs::RedirectStubs;
use requester::Clients;
use saved_state::SavedState;
use service_worker::Workers;
use shared::Shared;
use sharing::Sharing;
use site_knowledge::SiteKnowledge;
use site_names::SiteNames;
use site_rules::SiteRules;
use upstream_state::UpstreamState;
use visitors::Visitors;

pub use access::Access;
pub use byte_caps::ByteCaps;
pub use learner::Learn;
pub use monitor::KEPT_TIMES;
pub use persistence::Save;
pub use settings::{MinBenefit, MonitorSettings, ServiceWorker, Settings, ShareSettings};
pub use site_names::{NoName, site_name};

/// Prefetching for the site behind a proxy.
#[derive(Debug)]
pub struct Nps {
    shared: Arc<Shared>,
    end: watch::Sender<bool>,
    /// The learner's thread, until it runs.
    worker: Mutex<Option<LearnerStart>>,
    /// Addresses that clients connect to.
    addresses: Mutex<Vec<Address>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Nps {
    /// Prefetching with these settings and a model that continues to learn. The model is given to `save` at
    /// the start, at the end, and every minute if it has changed or the last save failed. Nothing is
    /// prefetched before the site's robots.txt is known, which is requested at the start.
    pub fn new(settings: Settings, model: Model, save: Option<Save>) -> Self {
        Nps::beginning(settings, Begin::With(Box::new(model)), save)
    }

    /// The same with a model that is made after the proxy has started, while it serves. Until then lists are
    /// empty.
    pub fn learning(settings: Settings, learn: Learn, save: Option<Save>) -> Self {
        Nps::beginning(settings, Begin::Learning(learn), save)
    }

    fn beginning(settings: Settings, begin: Begin, save: Option<Save>) -> Self {
        let (learner, worker) = learner::learner(begin, save);
        let knowledge = SiteKnowledge {
            learner,
            lengths: Lengths::default(),
            comparison: Arc::new(PageComparison::new(&settings.rules.harmless)),
            stubs: RedirectStubs::default(),
        };
        let sharing = settings.share.clone().and_then(Sharing::new).map(Arc::new);
        let clients = Clients::new(&settings, sharing.clone());
        let payback = Payback::new(settings.min_benefit);
        let shared = Shared {
            knowledge,
            visitors: Visitors::new(clients, Caps::new(settings.caps)),
            upstream: UpstreamState::new(Monitor::new(settings.monitor.clone())),
            workers: Workers::new(settings.service_worker),
            rules: Arc::new(SiteRules::new(settings, sharing.as_deref())),
            notices: Arc::new(Notices::default()),
            counts: Counts::default(),
            payback,
            names: SiteNames::default(),
            history: History::default(),
            saved: SavedState::default(),
            sharing,
            is_public: AtomicBool::new(false),
        };
        Nps {
            shared: Arc::new(shared),
            end: watch::channel(false).0,
            worker: Mutex::new(Some(worker)),
            addresses: Mutex::default(),
            threads: Mutex::default(),
        }
    }

    /// Takes over the URLs that an earlier process barred within the last day, as given to `save`, and saves
    /// them together with the model. Damaged input is ignored.
    #[must_use]
    pub fn with_saved_bars(self, before: &[u8], save: Save) -> Self {
        self.shared.rules.take_bars(before);
        self.shared.saved.save_bars_by(save);
        self
    }

    /// Takes over what an earlier process learned of the server's usual times, as given to `save`, and saves
    /// it together with the model. Damaged input is ignored.
    #[must_use]
    pub fn with_saved_times(self, before: &[u8], save: Save) -> Self {
        self.shared.upstream.monitor.take_times(before);
        self.shared.saved.save_times_by(save);
        self
    }

    /// The first bytes of saved messages to other proxies.
    pub const KEPT_UNSENT: &'static [u8] = Sharing::KEPT_UNSENT;

    /// Takes over the messages to other proxies that an earlier process could not send, as given to `save`, and saves
    /// new ones together with the model. Damaged input is ignored.
    #[must_use]
    pub fn with_saved_unsent(self, before: &[u8], save: Save) -> Self {
        if let Some(sharing) = &self.shared.sharing {
            sharing.continue_unsent(before);
            self.shared.saved.save_unsent_by(save);
        }
        self
    }

    /// Ends the threads beside the traffic, and saves the model, if it exists, and the state saved beside it.
    pub fn stop(&self) {
        let shared = &self.shared;
        // The log waits for its last line.
        shared.visitors.set_log(None);
        let threads = std::mem::take(&mut *lock(&self.threads));
        if threads.is_empty() {
            return;
        }
        self.end.send_replace(true);
        shared.knowledge.learner.end();
        for thread in threads {
            if !shared.knowledge.learner.is_stalled(&thread) {
                // A thread that panicked has reported it.
                let _ = thread.join();
            }
        }
        shared.saved.save(true, &shared.rules, &shared.upstream.monitor, &shared.notices);
    }

    /// Runs a thread beside the traffic. If it cannot start, its work is missing: without the learner there are
    /// no hints, without robots.txt no prefetches.
    fn run(&self, name: &str, work: impl FnOnce() + Send + 'static) {
        if let Ok(thread) = thread::Builder::new().name(name.to_owned()).spawn(work) {
            lock(&self.threads).push(thread);
        }
    }

    /// Reports at the start what the owner must know.
    fn report_start(&self, listener: &Listener) {
        let settings = &self.shared.rules.settings;
        if settings.speculation_rules {
            listener.report(&Event::NotInBackground);
        }
        let name = settings.hosts.first().and_then(|name| name.to_str().ok());
        if let Some(event) = access::access_event(&settings.access, name, &lock(&self.addresses)) {
            listener.report(&event);
        }
    }
}

impl Drop for Nps {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The tasks that run in the background of the traffic, until this is dropped.
async fn background_tasks(shared: &Shared, fetcher: Fetcher) {
    let Shared { rules, notices, knowledge, counts, upstream, history, saved, .. } = shared;
    let learner = &knowledge.learner;
    let around = MonitorContext { rules, learner, counts, notices };
    tokio::select! {
        () = robots::refresh(rules, &upstream.robots_again, notices, fetcher.clone()) => {}
        () = monitor::run(&upstream.monitor, around, fetcher.clone()) => {}
        () = upstream.keep_time() => {}
        () = kill_switch::watch(rules.settings.off_file.as_ref(), |is_off| rules.set_off(is_off)) => {}
        () = saved.save_every_minute(rules, &upstream.monitor, notices) => {}
        () = history::record(history, rules, counts, upstream) => {}
        () = share_link::run(shared) => {}
    }
}

impl Site for Nps {
    fn listens(&self, at: Address) {
        if at.background {
            self.shared.workers.listens_at(at);
            return;
        }
        if access::is_public(at.address.ip()) {
            self.shared.is_public.store(true, Ordering::Relaxed);
        }
        lock(&self.addresses).push(at);
    }

    fn logs_to(&self, visits: VisitLog) {
        self.shared.visitors.set_log(Some(visits));
    }

    fn reloaded(&self) {
        self.shared.upstream.monitor.choose();
        self.shared.upstream.robots_again.notify_one();
    }

    fn upstream_changed(&self) {
        self.shared.upstream.monitor.relearn();
    }

    fn ended(&self) {
        self.stop();
    }

    fn schedules(&self) -> Option<Parameters> {
        self.shared.rules.settings.monitor.parameters.is_none().then(Parameters::default)
    }

    fn started(&self, metrics: &Metrics, fetcher: Fetcher, listener: &Listener) {
        self.shared.notices.listen(listener);
        self.report_start(listener);
        self.shared.upstream.started(metrics, &fetcher);
        let (shared, mut end) = (Arc::clone(&self.shared), self.end.subscribe());
        let fetcher = match shared.rules.settings.hosts.first() {
            Some(host) => fetcher.of_site(host.clone()),
            None => fetcher,
        };
        if let Some(worker) = lock(&self.worker).take() {
            let shared = Arc::clone(&shared);
            self.run("lull-web-learner", move || learner_worker::run(worker, &shared));
        }
        let beside = async move {
            tokio::select! {
                () = background_tasks(&shared, fetcher) => {}
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
        // Logs are learned, and these requests are not visits.
        let is_ahead =
            connection.is_always_background() || head.headers.contains_key(policy::PREFETCH_HEADER);
        let is_own = if shared.rules.is_own_host(head) {
            let has_rules = shared.rules.settings.speculation_rules;
            has_rules && policy::is_by_rules(&head.headers) || endpoints::is_own(path)
        } else {
            endpoints::FIGURES.contains(&path)
        };
        (!is_ahead && !is_own).then(|| shared.requester(head, connection).address)
    }

    fn request(&self, head: &mut request::Parts, connection: &Arc<Connection>) -> Decision {
        let shared = &self.shared;
        if connection.is_always_background() {
            return worker_requests::prefetch(shared, head, connection);
        }
        let is_marked = head.headers.contains_key(policy::PREFETCH_HEADER);
        if !shared.rules.is_own_host(head) {
            if let Some(figures) = endpoints::redirect_to_name(shared, head) {
                return Decision::Answer(figures);
            }
            if shared.names.other(shared.rules.now()) {
                shared.notices.other_host(head);
            }
            return if is_marked { prefetches::refused() } else { Decision::Forward };
        }
        shared.names.met();
        let requester = shared.requester(head, connection);
        if requester.secure {
            shared.upstream.visited_by_https();
        }
        if requester.by_cache {
            shared.notices.shared_cache(head);
        }
        let tags = policy::take_tags(&mut head.headers);
        if endpoints::is_own(head.uri.path()) {
            endpoints::answer(shared, head, requester)
        } else if policy::is_confirmation(&head.headers) {
            prefetches::confirm(&PrefetchLimits::of(shared), head, requester, &tags)
        } else if is_marked {
            prefetches::admit(shared, head, requester, connection, &tags)
        } else if shared.rules.settings.speculation_rules && policy::is_by_rules(&head.headers) {
            prefetches::admit_by_rules(shared, head, requester)
        } else if let Some(renewed) =
            prefetches::renew(&PrefetchLimits::of(shared), head, requester, &tags)
        {
            // Its script reports that the page was shown, as with a copy that needed no request.
            renewed
        } else {
            let urls = &shared.rules.settings.rules.urls;
            shared.visitors.cached_pages.goes_on(requester.client, head, urls);
            cdn::note_navigation(&shared.rules, &shared.visitors.cached_pages, head, requester);
            demand::watch(shared, head, requester)
        }
    }
}
