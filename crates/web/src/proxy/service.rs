//! One request, from its head to the head of its answer.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::header::{HOST, UPGRADE};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, request, response};
use hyper::body::{Body as _, Incoming};
use hyper::upgrade::OnUpgrade;
use lull_speculate::scheduler::End;
use tokio::sync::OwnedSemaphorePermit;

use super::access_log::Line;
use super::body::Body;
use super::connection::{Connection, CountGuard, RequestGuard};
use super::error::Failure;
use super::headers::{self, Checked, Forwarding, Framing};
use super::hosted_site::HostedSite;
use super::location::PublicOrigin;
use super::prefetch::Sending;
use super::recoding::Recoding;
use super::reply::{Account, Reply};
use super::request_body::{RequestBody, Upload};
use super::scheduler::PrefetchPriority;
use super::site::Decision;
use super::spool;
use super::traffic_thread::TrafficThread;
use super::tunnel;
use super::upstream::{self, Answer, Carrier, UpstreamBody};
use super::upstream_access::UpstreamAccess;
use super::websocket;

/// Answers one request.
pub(crate) async fn handle(
    thread: Arc<TrafficThread>,
    connection: Arc<Connection>,
    mut request: Request<Incoming>,
) -> Result<Response<Reply>, Infallible> {
    let may_upgrade =
        request.headers().contains_key(UPGRADE) || request.method() == Method::CONNECT;
    let on_upgrade = may_upgrade.then(|| hyper::upgrade::on(&mut request));
    let (mut head, incoming) = request.into_parts();
    let opens_websocket = websocket::to_upgrade(&mut head);
    let line = thread.log.as_ref().map(|_| Line::new(connection.peer().ip(), &head));
    let mut account = Account::open(&thread, &connection, &head, line);
    let has_body = note_body(&connection, &incoming);
    let is_left = has_body && head.version != Version::HTTP_2;
    let checked = headers::check(&head, has_body, thread.config.limits.uri_bytes);
    let mut checked = match checked {
        Ok(checked) => Checked { opens_websocket, ..checked },
        Err(refusal) => {
            connection.left_unread.store(is_left, Ordering::Relaxed);
            return Ok(account.fail(Failure::Refused, refusal.status, refusal.why));
        }
    };
    if let Some(answer) = thread.challenges.answer(head.uri.path()) {
        connection.left_unread.store(is_left, Ordering::Relaxed);
        return Ok(account.reply(Response::new(Body::full(answer))));
    }
    let serving = thread.serving.get();
    let Some(site) = serving.sites.find(checked.host.as_ref()) else {
        connection.left_unread.store(is_left, Ordering::Relaxed);
        let why = "no site of this server has the host of the request";
        return Ok(account.fail(Failure::Refused, StatusCode::MISDIRECTED_REQUEST, why));
    };
    account.site = Some(Arc::clone(site));
    account.is_secure = came_by_https(&head, &connection, thread.config.trust_forwarded);
    if let Some(redirect) = site.redirect(&head, account.is_secure) {
        connection.left_unread.store(is_left, Ordering::Relaxed);
        return Ok(account.reply(redirect));
    }
    connection.left_unread.store(false, Ordering::Relaxed);
    let is_among_others = head.version == Version::HTTP_2;
    account.guard = Some(RequestGuard::new(&connection, checked.is_marked, is_among_others));
    if checked.is_marked {
        thread.counters.marked.increment();
        account.is_marked = true;
    }
    headers::join_cookies(&mut head.headers);
    if let (Some(hook), Some(_)) = (&site.hook, &thread.log) {
        account.log_as(hook.logged_as(&head, &connection));
    }
    let decision = match &site.hook {
        Some(hook) => hook.request(&mut head, &connection),
        None => Decision::Forward,
    };
    if connection.is_always_background()
        && let Some(host) = head.headers.get(HOST)
    {
        // The upstream must not see the port by which the client came.
        checked.host = Some(host.clone());
    }
    let framing = framing(has_body, &incoming);
    let (body, upload) = if has_body {
        take_body(incoming, &checked, (&thread, &connection), &account)
    } else {
        (RequestBody::empty(), None)
    };
    let upstream = Arc::clone(&serving.upstreams[site.upstream_for(head.uri.path())]);
    let outgoing = Outgoing { head, body, upload, checked, framing, on_upgrade, upstream };
    Ok(answer(&thread, &connection, site, decision, outgoing, account).await)
}

/// The body of a request, and its progress.
fn take_body(
    incoming: Incoming,
    checked: &Checked,
    (thread, connection): (&TrafficThread, &Arc<Connection>),
    account: &Account,
) -> (RequestBody, Option<Arc<Upload>>) {
    let upload = Upload::new(!checked.expects_continue);
    let (counters, stream) = (&thread.counters, account.stream.clone());
    let body = RequestBody::new(incoming, Arc::clone(&upload), connection, counters, stream);
    (body, Some(upload))
}

/// Whether a request has a body. Its connection is notified of it.
fn note_body(connection: &Connection, incoming: &Incoming) -> bool {
    let has_body = !incoming.is_end_stream();
    if has_body {
        connection.has_had_body.store(true, Ordering::Relaxed);
    } else {
        connection.bodiless.fetch_add(1, Ordering::Relaxed);
    }
    has_body
}

fn framing(has_body: bool, incoming: &Incoming) -> Framing {
    match (has_body, incoming.size_hint().exact()) {
        (false, _) => Framing::None,
        (true, Some(_)) => Framing::Length,
        (true, None) => Framing::Chunked,
    }
}

/// Whether a client came by HTTPS: as the proxy in front says it, if that is believed.
fn came_by_https(head: &request::Parts, connection: &Connection, trusts: bool) -> bool {
    let said = head.headers.get(headers::X_FORWARDED_PROTO).filter(|_| trusts);
    said.map_or_else(|| connection.is_secure(), |said| said == "https")
}

/// A request that goes upstream.
struct Outgoing {
    head: request::Parts,
    body: RequestBody,
    upload: Option<Arc<Upload>>,
    checked: Checked,
    framing: Framing,
    on_upgrade: Option<OnUpgrade>,
    upstream: Arc<UpstreamAccess>,
}

async fn answer(
    thread: &TrafficThread,
    connection: &Arc<Connection>,
    site: &HostedSite,
    decision: Decision,
    outgoing: Outgoing,
    mut account: Account,
) -> Response<Reply> {
    match decision {
        Decision::Forward => {}
        Decision::Watch(exchange) => account.exchange = Some(exchange),
        Decision::Answer(response) => return account.reply(response),
        Decision::AnswerLater(answerer) => {
            if let Some(upload) = &outgoing.upload {
                upload.open();
            }
            let response = answerer(Request::from_parts(outgoing.head, outgoing.body)).await;
            return account.reply(response);
        }
    }
    match forward(thread, connection, site, outgoing, &mut account).await {
        Ok(response) => account.reply(response),
        Err(failure) => account.fail(failure, failure.status(), &failure.to_string()),
    }
}

/// The way of one request to its upstream and back.
struct Forwarder<'a> {
    thread: &'a TrafficThread,
    connection: &'a Arc<Connection>,
    site: &'a HostedSite,
    upstream: &'a Arc<UpstreamAccess>,
    /// How visitors call the site: as the proxy in front says it, if that is believed.
    public: Option<PublicOrigin>,
}

async fn forward(
    thread: &TrafficThread,
    connection: &Arc<Connection>,
    site: &HostedSite,
    outgoing: Outgoing,
    account: &mut Account,
) -> Result<Response<Body>, Failure> {
    let Outgoing { mut head, body, upload, checked, framing, on_upgrade, upstream } = outgoing;
    let upstream = &upstream;
    let upgrade = headers::to_upstream(
        &mut head,
        &checked,
        framing,
        &Forwarding {
            peer: &connection.shown_peer,
            is_secure: connection.is_secure(),
            trusts: thread.config.trust_forwarded,
            upstream_host: upstream.group.host.as_ref(),
            upstream_authority: &upstream.group.servers[0].config.authority,
            via: thread.config.via.as_ref(),
        },
    );
    site.config.request_headers.apply(&mut head.headers);
    let said = |name| head.headers.get(name);
    let public =
        PublicOrigin::new(said(headers::X_FORWARDED_PROTO), said(headers::X_FORWARDED_HOST));
    let way = Forwarder { thread, connection, site, upstream, public };
    let _waiting = CountGuard::waiting_for_upstream(connection);
    let request = Request::from_parts(head, body);
    let priority = account.exchange.as_ref().and_then(|exchange| exchange.prefetch());
    if let (Some(priority), Some(scheduler)) = (priority, &upstream.group.scheduler) {
        let sending = Sending { thread, upstream, connection, scheduler, priority };
        return way.prefetch(sending, request, account).await;
    }
    let permit = way.permit(priority).await?;
    let upgrade = on_upgrade.zip(upgrade);
    way.send(request, upload, upgrade, permit, account).await
}

impl Forwarder<'_> {
    /// Adds the site's fields to an answer, before anything else sees it.
    fn finish(&self, head: &mut response::Parts) {
        if let Some(public) = &self.public {
            for server in self.upstream.group.all_servers() {
                public.rewrite(&mut head.headers, &server.config);
            }
        }
        self.site.config.response_headers.apply(&mut head.headers);
    }

    /// Leave to send a request upstream.
    async fn permit(
        &self,
        priority: Option<PrefetchPriority>,
    ) -> Result<OwnedSemaphorePermit, Failure> {
        let room = Arc::clone(&self.thread.upstream_room);
        if let Ok(permit) = Arc::clone(&room).try_acquire_owned() {
            return Ok(permit);
        }
        // Its place in the queue belongs to a visitor.
        if priority.is_some() {
            return Err(Failure::Busy);
        }
        let patience = self.thread.config.timeouts.connect;
        match tokio::time::timeout(patience, room.acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(Failure::Busy),
        }
    }

    /// Sends a prefetch, and compresses its answer in place of a server nearby.
    async fn prefetch(
        &self,
        sending: Sending<'_>,
        mut request: Request<RequestBody>,
        account: &mut Account,
    ) -> Result<Response<Body>, Failure> {
        let compressor = self.thread.compressor.as_ref();
        let recoding = compressor
            .filter(|_| self.upstream.group.is_near())
            .and_then(|compressor| Some((compressor, Recoding::request(request.headers_mut())?)));
        if recoding.is_some_and(|(compressor, _)| compressor.is_behind()) {
            return Err(Failure::NotNow);
        }
        let (mut head, mut body) = sending.send(request, account).await?;
        self.finish(&mut head);
        // The exchange replaces some of the server's headers.
        let recoding = recoding.filter(|(_, recoding)| recoding.is_allowed(&head));
        if let Some(exchange) = &mut account.exchange {
            body = exchange.response(&mut head, body);
        }
        if let Some((compressor, recoding)) = recoding {
            body = recoding.when_idle(compressor, &mut head, body);
        }
        Ok(Response::from_parts(head, body))
    }

    async fn send(
        &self,
        mut request: Request<RequestBody>,
        upload: Option<Arc<Upload>>,
        upgrade: Option<(OnUpgrade, HeaderValue)>,
        permit: OwnedSemaphorePermit,
        account: &mut Account,
    ) -> Result<Response<Body>, Failure> {
        let Forwarder { thread, connection, upstream, .. } = self;
        let is_recoded = account.exchange.as_ref().is_some_and(|exchange| exchange.is_recoded());
        let mut recoding = None;
        if is_recoded && upstream.group.is_near() {
            recoding = Recoding::request(request.headers_mut());
        }
        let scheduler = upstream.group.scheduler.as_ref();
        let mut upstream_permit = scheduler.map(|scheduler| scheduler.demand(request.uri().path()));
        if let Some(upload) = upload.as_ref().filter(|upload| !upload.is_open()) {
            let upload = Arc::clone(upload);
            hyper::ext::on_informational(&mut request, move |response| {
                if response.status() == StatusCode::CONTINUE {
                    upload.open();
                }
            });
        }
        let patience = thread.config.timeouts.head;
        let answer = upstream::send(upstream, request, upload.as_ref(), patience).await?;
        let Answer { response, carrier, service, sent } = answer;
        // More of an upload may have arrived later.
        account.note_first_byte(upload.is_none().then_some(sent));
        let is_upgrade = upstream::is_upgrade(&response);
        if let Some(upstream_permit) = &mut upstream_permit {
            let says_nothing = upload.is_some() || response.status().is_server_error();
            upstream_permit.head(if says_nothing { End::Cancelled } else { End::Served });
        }
        let (mut head, incoming) = response.into_parts();
        headers::to_client(&mut head, upgrade.is_some()).map_err(|_| Failure::Garbage)?;
        self.finish(&mut head);
        if let Some((on_upgrade, _)) = upgrade.filter(|_| is_upgrade) {
            // Browsers accept its cookies like any others.
            if let Some(exchange) = &mut account.exchange {
                exchange.response(&mut head, Body::empty());
            }
            if head.status == StatusCode::SWITCHING_PROTOCOLS {
                let among_others = account.is_h2().then(|| {
                    websocket::to_accepted(&mut head);
                    tunnel::AmongOthers::new(connection, account.guard.take())
                });
                connection.is_tunnel.store(among_others.is_none(), Ordering::Relaxed);
                let Carrier::Link(link) = carrier else { return Err(Failure::Garbage) };
                tokio::spawn(tunnel::run(on_upgrade, link, permit, among_others));
            }
            return Ok(Response::from_parts(head, Body::empty()));
        }
        let upstream_permit = upstream_permit.map(Box::new);
        let body =
            UpstreamBody::new(incoming, (carrier, service), connection, permit, upstream_permit);
        let Some(exchange) = &mut account.exchange else {
            return Ok(Response::from_parts(head, Body::upstream(body)));
        };
        let is_ahead = exchange.prefetch().is_some();
        let body =
            if is_ahead { spool::spooled(body, &thread.spools) } else { Body::upstream(body) };
        let recoding = recoding.filter(|recoding| recoding.is_allowed(&head));
        let mut body = exchange.response(&mut head, body);
        if let Some(recoding) = recoding {
            body = recoding.at_once(&mut head, body);
        }
        Ok(Response::from_parts(head, body))
    }
}
