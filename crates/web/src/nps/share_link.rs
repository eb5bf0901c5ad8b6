//! The connection to the NATS server through which proxies of a site share what they learn.

use std::future::{pending, poll_fn, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_nats::connection::State;
use async_nats::datetime::DateTime;
use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::stream::{Config, DiscardPolicy, Stream};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions, Server, ServerAddr, Subscriber};
use futures_core::Stream as _;
use tokio::time::{sleep, timeout};

use super::byte_caps::Caps;
use super::clock::wall;
use super::learner::Learner;
use super::lock::lock;
use super::notices::Notices;
use super::shared::Shared;
use super::sharing::{Message, PRESENCE_INTERVAL, Sharing};
use super::site_rules::SiteRules;
use super::upstream_state::UpstreamState;
use crate::proxy::Event;

/// Interval at which new counts and bars are sent: an epoch of a budget is half a second, a visit some minutes.
const SEND_INTERVAL: Duration = Duration::from_secs(2);
/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(2);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The stream keeps messages for this long, and so many bytes of them.
const KEPT: Duration = Duration::from_secs(24 * 3600);
const KEPT_BYTES: i64 = 256 << 20;
/// A failure that lasts is reported after this time.
const REPORTED_AFTER: Duration = Duration::from_secs(10);
/// Interval at which a receiver that gets nothing looks for messages that it should have got.
const CHECKED_AFTER: Duration = Duration::from_secs(10);
/// Pause while the learner has no room.
const BUSY: Duration = Duration::from_millis(50);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The parts of a site that take part in sharing, and how the proxies share.
struct ShareLink<'a> {
    sharing: &'a Sharing,
    rules: &'a SiteRules,
    notices: &'a Notices,
    learner: &'a Learner,
    caps: &'a Caps,
    upstream: &'a UpstreamState,
}

impl<'a> ShareLink<'a> {
    /// None if this is the only proxy of the site.
    fn of(shared: &'a Shared) -> Option<Self> {
        let Shared { rules, notices, knowledge, visitors, upstream, sharing, .. } = shared;
        let (learner, caps) = (&knowledge.learner, &visitors.caps);
        let sharing = sharing.as_deref()?;
        Some(ShareLink { sharing, rules, notices, learner, caps, upstream })
    }
}

/// Shares until it is dropped.
pub(super) async fn run(shared: &Shared) {
    let Some(link) = ShareLink::of(shared) else { return pending().await };
    while link.learner.is_reading() {
        sleep(BUSY).await;
    }
    let client = loop {
        match connect(link.sharing).await {
            Ok(client) => break client,
            Err(why) => {
                link.notices.report(&Event::ShareDown { why: why.to_string() });
                sleep(RETRY * 30).await;
            }
        }
    };
    let jetstream = jetstream::new(client.clone());
    tokio::select! {
        () = send(&link, &client, &jetstream) => {}
        () = receive(&link, &jetstream) => {}
        () = presence(&link, &client) => {}
        () = watch(&link, &client) => {}
    }
}

/// A client that connects in the background, now and after each interruption. It fails for wrong settings
/// only.
async fn connect(sharing: &Sharing) -> Result<Client, Failure> {
    let settings = &sharing.settings;
    let (refusals, causes) = (Arc::clone(&sharing.refusals), Arc::clone(&sharing.refusals));
    let no_connection = |why: &str| format!("there is no connection to the NATS server: {why}");
    let mut options = ConnectOptions::new()
        .event_callback(move |event| {
            let mut refusals = lock(&refusals);
            match event {
                async_nats::Event::Connected => refusals.clear(),
                async_nats::Event::ServerError(error) => refusals.note(error.to_string()),
                async_nats::Event::ClientError(error) => {
                    let why = || no_connection(&error.to_string());
                    refusals.connecting.get_or_insert_with(why);
                }
                _ => {}
            }
            async {}
        })
        // It chooses no server. The events do not have the causes of failed attempts.
        .reconnect_to_server_callback(move |servers: Vec<Server>, _| {
            if let Some(why) = servers.into_iter().find_map(|server| server.last_error) {
                lock(&causes).connecting = Some(no_connection(&why));
            }
            ready(None)
        })
        .name("lull web")
        .retry_on_initial_connect()
        .connection_timeout(CONNECT_TIMEOUT)
        .reconnect_delay_callback(|attempts| {
            RETRY.min(Duration::from_millis(100) * attempts as u32)
        });
    let servers: Result<Vec<ServerAddr>, _> =
        settings.servers.iter().map(|server| server.parse::<ServerAddr>()).collect();
    let servers = servers?;
    // The client does not use those of the addresses.
    let mut credentials =
        servers.iter().filter_map(|server| server.username().zip(server.password()));
    if let Some((user, password)) = credentials.next() {
        options = options.user_and_password(user.to_owned(), password.to_owned());
    }
    Ok(options.connect(servers).await?)
}

fn is_connected(client: &Client) -> bool {
    client.connection_state() == State::Connected
}

fn subject(sharing: &Sharing, what: &str) -> String {
    format!("lull.web.{}.{what}", sharing.settings.name)
}

/// The stream of all deltas and bars of the site, made by the first proxy.
async fn stream(sharing: &Sharing, jetstream: &Context) -> Result<Stream, Failure> {
    let config = Config {
        name: format!("lull-web-{}", sharing.settings.name),
        subjects: vec![subject(sharing, "log")],
        max_age: KEPT,
        max_bytes: KEPT_BYTES,
        discard: DiscardPolicy::Old,
        description: Some("What the proxies of a site have learned (lull web --share)".to_owned()),
        ..Config::default()
    };
    Ok(jetstream.get_or_create_stream(config).await?)
}

/// Sends what is new. A message is sent until the server confirms it. Meanwhile counts add up in the model.
async fn send(link: &ShareLink<'_>, client: &Client, jetstream: &Context) {
    loop {
        sleep(SEND_INTERVAL).await;
        if is_connected(client) {
            let sent = send_all(link, jetstream).await;
            lock(&link.sharing.troubles).sending = sent.err().map(|error| error.to_string());
        }
    }
}

async fn send_all(link: &ShareLink<'_>, jetstream: &Context) -> Result<(), Failure> {
    // The server may have lost it.
    stream(link.sharing, jetstream).await?;
    let subject = subject(link.sharing, "log");
    loop {
        let first = || lock(&link.sharing.unsent).first().map(<[u8]>::to_vec);
        let mut next = first();
        if next.is_none() {
            if let Some(message) = next_message(link).await {
                lock(&link.sharing.unsent).push(&message);
            }
            next = first();
        }
        let message = next.and_then(|next| link.sharing.sealer.seal(&subject, next));
        let Some(message) = message else { return Ok(()) };
        publish(jetstream, &subject, message).await?;
        lock(&link.sharing.unsent).confirm_first();
        link.sharing.sent.fetch_add(1, Ordering::Relaxed);
    }
}

async fn publish(jetstream: &Context, subject: &str, message: Vec<u8>) -> Result<(), Failure> {
    jetstream.publish(subject.to_owned(), message.into()).await?.await?;
    Ok(())
}

/// New bars, or new counts.
async fn next_message(link: &ShareLink<'_>) -> Option<Message> {
    let (sender, now) = (link.sharing.sender, link.rules.now());
    let bars = link.rules.policy().take_new_bars(now, wall());
    if let Some(bytes) = bars {
        return Some(Message::Bars { sender, bytes });
    }
    let (number, bytes) = link.learner.take_delta().await?;
    Some(Message::Delta { sender, number, bytes })
}

/// Receives what others have sent, from the oldest message that the server keeps.
async fn receive(link: &ShareLink<'_>, jetstream: &Context) {
    let mut received = Received::default();
    loop {
        let ended = receive_after(&mut received, link, jetstream).await;
        lock(&link.sharing.troubles).receiving = ended.err().map(|error| error.to_string());
        sleep(RETRY).await;
    }
}

/// Up to which message of the stream all are received.
#[derive(Default)]
struct Received {
    last: u64,
    /// When the stream was made, by the server's clock. A server that has lost its disk gets another stream.
    stream: Option<DateTime>,
}

async fn receive_after(
    received: &mut Received,
    link: &ShareLink<'_>,
    jetstream: &Context,
) -> Result<(), Failure> {
    let stream = stream(link.sharing, jetstream).await?;
    let created = Some(stream.cached_info().created);
    if received.stream != created {
        *received = Received { last: 0, stream: created };
    }
    let deliver_policy = match received.last {
        0 => DeliverPolicy::All,
        last => DeliverPolicy::ByStartSequence { start_sequence: last + 1 },
    };
    let config = pull::OrderedConfig { deliver_policy, ..pull::OrderedConfig::default() };
    let mut messages = stream.create_consumer(config).await?.messages().await?;
    let mut waiting = received.waiting(&stream);
    loop {
        if waiting.is_none() {
            lock(&link.sharing.troubles).receiving = None;
        }
        let next = poll_fn(|context| Pin::new(&mut messages).poll_next(context));
        match timeout(CHECKED_AFTER, next).await {
            Ok(Some(message)) => {
                let message = message?;
                let sequence = message.info()?.stream_sequence;
                take(link, &message.subject, &message.payload).await;
                received.last = sequence;
                waiting = None;
            }
            Ok(None) => return Ok(()),
            // The client repeats what fails for ever, without an error.
            Err(_) => {
                waiting = received.check(waiting, &self::stream(link.sharing, jetstream).await?)?
            }
        }
    }
}

impl Received {
    /// The last message of the stream, if it was not received.
    fn waiting(&self, stream: &Stream) -> Option<u64> {
        let state = &stream.cached_info().state;
        (state.messages > 0 && state.last_sequence > self.last).then_some(state.last_sequence)
    }

    /// The message that is to be received until the next check. Fails if the one of the check before was not.
    fn check(&self, waiting: Option<u64>, stream: &Stream) -> Result<Option<u64>, Failure> {
        if self.stream != Some(stream.cached_info().created) {
            return Err("the NATS server has another stream".into());
        }
        if waiting.is_some() {
            return Err("the NATS server has messages, and does not send them".into());
        }
        Ok(self.waiting(stream))
    }
}

/// Adds a message of another proxy.
async fn take(link: &ShareLink<'_>, subject: &str, sealed: &[u8]) {
    let message = match link.sharing.sealer.open(subject, sealed) {
        Ok(bytes) => Message::decode(&bytes),
        Err(error) => {
            if !link.sharing.has_reported_unreadable.swap(true, Ordering::Relaxed) {
                let why = format!("a message of another proxy cannot be read: {error}");
                link.notices.report(&Event::ShareUnreadable { why });
            }
            return;
        }
    };
    let now = link.rules.now();
    match message {
        Some(Message::Delta { sender, number, bytes }) => {
            let learner = &link.learner;
            while !learner.merge(sender, number, &bytes) {
                sleep(BUSY).await;
            }
        }
        Some(Message::Bars { sender, bytes }) if sender != link.sharing.sender => {
            link.rules.policy().add_bars(&bytes, now, wall());
        }
        Some(Message::Presence { sender, spent }) => {
            if sender != link.sharing.sender {
                lock(&link.sharing.peers).record(sender, spent, now);
            }
            return;
        }
        _ => return,
    }
    link.sharing.merged.fetch_add(1, Ordering::Relaxed);
}

/// Says that this proxy runs, and counts the others. These messages are not kept.
async fn presence(link: &ShareLink<'_>, client: &Client) {
    let subject = subject(link.sharing, "presence");
    let mut messages: Option<Subscriber> = None;
    loop {
        if messages.is_none() {
            messages = client.subscribe(subject.clone()).await.ok();
        }
        if is_connected(client) {
            let spent = link.caps.spent(link.rules.now());
            let message = Message::Presence { sender: link.sharing.sender, spent }.encode();
            if let Some(sealed) = link.sharing.sealer.seal(&subject, message) {
                // The next one is sent soon.
                let _ = client.publish(subject.clone(), sealed.into()).await;
            }
        }
        let until = Instant::now() + PRESENCE_INTERVAL;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let Some(messages) = &mut messages else {
                sleep(left).await;
                break;
            };
            let next = poll_fn(|context| Pin::new(&mut *messages).poll_next(context));
            match tokio::time::timeout(left, next).await {
                Ok(Some(message)) => {
                    take(link, &message.subject, &message.payload).await;
                }
                Ok(None) => sleep(left).await,
                Err(_) => break,
            }
        }
    }
}

/// Reports interruptions, and divides the budget by the number of proxies.
async fn watch(link: &ShareLink<'_>, client: &Client) {
    let (mut is_reported, mut down_since) = (false, Some(Instant::now()));
    loop {
        let (is_up, now) = (is_connected(client), link.rules.now());
        let was_up = link.sharing.is_connected.swap(is_up, Ordering::Relaxed);
        if is_up && !was_up {
            lock(&link.sharing.peers).resume(now);
        }
        match link.sharing.trouble() {
            None => {
                down_since = None;
                if std::mem::take(&mut is_reported) {
                    link.notices.report(&Event::ShareUp);
                }
            }
            Some(why) => {
                let since = *down_since.get_or_insert_with(Instant::now);
                if since.elapsed() > REPORTED_AFTER && !is_reported {
                    is_reported = true;
                    link.notices.report(&Event::ShareDown { why });
                }
            }
        }
        let (others, spent) = link.sharing.others(now);
        for (_, scheduler) in link.upstream.schedulers() {
            scheduler.set_sharers(others + 1);
        }
        link.caps.spent_elsewhere(spent, others as u64, now);
        sleep(Duration::from_secs(1)).await;
    }
}
