//! One request, from its head to the head of its answer.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::header::{HOST, UPGRADE};
use http::{Request, Response, StatusCode, Version, request};
use hyper::body::{Body as _, Incoming};
use hyper::upgrade::OnUpgrade;
use lull_speculate::scheduler::End;

use super::access_log::Line;
use super::body::Body;
use super::connection::{Connection, Counted, Turn};
use super::error::Failure;
use super::headers::{self, Checked, Forwarding, Framing};
use super::location::PublicOrigin;
use super::prefetch::Sending;
use super::reply::{Account, Reply};
use super::request_body::{RequestBody, Upload};
use super::site::Decision;
use super::spool;
use super::traffic_thread::TrafficThread;
use super::tunnel;
use super::upstream::{self, Answer, UpstreamBody};

/// Answers one request.
pub(crate) async fn handle(
    worker: Arc<TrafficThread>,
    connection: Arc<Connection>,
    mut request: Request<Incoming>,
) -> Result<Response<Reply>, Infallible> {
    let on_upgrade =
        request.headers().contains_key(UPGRADE).then(|| hyper::upgrade::on(&mut request));
    let (mut head, incoming) = request.into_parts();
    let line = worker.log.as_ref().map(|_| Line::new(connection.peer().ip(), &head));
    let mut account = Account::open(&worker, &connection, &head, line);
    let has_body = !incoming.is_end_stream();
    if has_body {
        connection.has_had_body.store(true, Ordering::Relaxed);
    } else {
        connection.bodiless.fetch_add(1, Ordering::Relaxed);
    }
    let mut checked = match headers::check(&head, has_body, worker.config.limits.uri_bytes) {
        Ok(checked) => checked,
        Err(refusal) => {
            let is_left = has_body && head.version != Version::HTTP_2;
            connection.left_unread.store(is_left, Ordering::Relaxed);
            return Ok(account.fail(Failure::Refused, refusal.status, refusal.why));
        }
    };
    connection.left_unread.store(false, Ordering::Relaxed);
    let is_among_others = head.version == Version::HTTP_2;
    account.turn = Some(Turn::new(&connection, checked.is_marked, is_among_others));
    if checked.is_marked {
        worker.counters.marked.increment();
    }
    headers::join_cookies(&mut head.headers);
    if let (Some(site), Some(_)) = (&worker.site, &worker.log) {
        account.log_as(site.logged_as(&head, &connection));
    }
    let decision = match &worker.site {
        Some(site) => site.request(&mut head, &connection),
        None => Decision::Forward,
    };
    if connection.is_always_background()
        && let Some(host) = head.headers.get(HOST)
    {
        // The port by which the client came is nothing to the upstream.
        checked.host = Some(host.clone());
    }
    let framing = match (has_body, incoming.size_hint().exact()) {
        (false, _) => Framing::None,
        (true, Some(_)) => Framing::Length,
        (true, None) => Framing::Chunked,
    };
    let (body, upload) = if has_body {
        let upload = Upload::new(!checked.expects_continue);
        let (counters, stream) = (&worker.counters, account.stream.clone());
        let body = RequestBody::new(incoming, Arc::clone(&upload), &connection, counters, stream);
        (body, Some(upload))
    } else {
        (RequestBody::empty(), None)
    };
    match decision {
        Decision::Forward => {}
        Decision::Watch(exchange) => account.exchange = Some(exchange),
        Decision::Answer(response) => return Ok(account.reply(response)),
        Decision::AnswerLater(answerer) => {
            if let Some(upload) = &upload {
                upload.open();
            }
            let response = answerer(Request::from_parts(head, body)).await;
            return Ok(account.reply(response));
        }
    }
    let outgoing = Outgoing { head, body, upload, checked, framing, on_upgrade };
    Ok(match forward(&worker, &connection, outgoing, &mut account).await {
        Ok(response) => account.reply(response),
        Err(failure) => account.fail(failure, failure.status(), &failure.to_string()),
    })
}

/// A request that goes upstream.
struct Outgoing {
    head: request::Parts,
    body: RequestBody,
    upload: Option<Arc<Upload>>,
    checked: Checked,
    framing: Framing,
    on_upgrade: Option<OnUpgrade>,
}

async fn forward(
    worker: &Arc<TrafficThread>,
    connection: &Arc<Connection>,
    outgoing: Outgoing,
    account: &mut Account,
) -> Result<Response<Body>, Failure> {
    let Outgoing { mut head, body, upload, checked, framing, on_upgrade } = outgoing;
    let config = &worker.config;
    let upgrade = headers::to_upstream(
        &mut head,
        &checked,
        framing,
        &Forwarding {
            peer: &connection.shown_peer,
            is_secure: connection.is_secure(),
            trusts: config.trust_forwarded,
            upstream_host: config.upstream_host.as_ref(),
            upstream_authority: &config.upstream.authority,
            via: config.via.as_ref(),
        },
    );
    // As a proxy in front says it, if that is believed.
    let said = |name| head.headers.get(name);
    let public =
        PublicOrigin::new(said(headers::X_FORWARDED_PROTO), said(headers::X_FORWARDED_HOST));
    let waiting = Counted::waiting_for_upstream(connection);
    let priority = account.exchange.as_ref().and_then(|exchange| exchange.prefetch());
    let is_ahead = priority.is_some();
    if let (Some(priority), Some(scheduler)) = (priority, &worker.scheduler) {
        let sending = Sending { worker, connection, scheduler, priority };
        let request = Request::from_parts(head, body);
        let (mut head, body) = sending.send(request, account).await?;
        if let Some(public) = &public {
            public.rewrite(&mut head.headers, &config.upstream);
        }
        let body = match &mut account.exchange {
            Some(exchange) => exchange.response(&mut head, body),
            None => body,
        };
        return Ok(Response::from_parts(head, body));
    }
    let permit = match Arc::clone(&worker.upstream_room).try_acquire_owned() {
        Ok(permit) => permit,
        // Its place in the queue is a visitor's.
        Err(_) if is_ahead => return Err(Failure::Busy),
        Err(_) => {
            let room = Arc::clone(&worker.upstream_room).acquire_owned();
            match tokio::time::timeout(config.timeouts.connect, room).await {
                Ok(Ok(permit)) => permit,
                _ => return Err(Failure::Busy),
            }
        }
    };
    let mut request = Request::from_parts(head, body);
    let mut place =
        worker.scheduler.as_ref().map(|scheduler| scheduler.demand(request.uri().path()));
    if let Some(upload) = upload.as_ref().filter(|upload| !upload.is_open()) {
        let upload = Arc::clone(upload);
        hyper::ext::on_informational(&mut request, move |response| {
            if response.status() == StatusCode::CONTINUE {
                upload.open();
            }
        });
    }
    let answer = upstream::send(worker, request, upload.as_ref(), config.timeouts.head).await?;
    drop(waiting);
    let Answer { response, link, sent } = answer;
    // Of an upload more may have come later.
    account.note_first_byte(upload.is_none().then_some(sent));
    let is_upgrade = upstream::is_upgrade(&response);
    if let Some(place) = &mut place {
        let says_nothing = upload.is_some() || response.status().is_server_error();
        place.head(if says_nothing { End::Cancelled } else { End::Served });
    }
    let (mut head, incoming) = response.into_parts();
    headers::to_client(&mut head, upgrade.is_some()).map_err(|_| Failure::Garbage)?;
    if let Some(public) = &public {
        public.rewrite(&mut head.headers, &config.upstream);
    }
    if let Some(on_upgrade) = on_upgrade.filter(|_| is_upgrade) {
        // Browsers take the cookies that come with it like any others.
        if let Some(exchange) = &mut account.exchange {
            exchange.response(&mut head, Body::empty());
        }
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            connection.is_tunnel.store(true, Ordering::Relaxed);
            tokio::spawn(tunnel::run(on_upgrade, link, permit));
        }
        return Ok(Response::from_parts(head, Body::empty()));
    }
    let body = UpstreamBody::new(incoming, link, worker, connection, permit, place.map(Box::new));
    let Some(exchange) = &mut account.exchange else {
        return Ok(Response::from_parts(head, Body::upstream(body)));
    };
    let body = if is_ahead { spool::spooled(body, &worker.spools) } else { Body::upstream(body) };
    let body = exchange.response(&mut head, body);
    Ok(Response::from_parts(head, body))
}
