//! A site on loopback, with the script inserter and the rules in front of it, as a proxy would have them.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, request, response};
use lull_cc::Timestamp;
use lull_web::policy::{self, Admitted, Client, Policy, Robots, Settings, Visitor};
use lull_web::protocol::{self, Beacon, Hint, HintsReply, HintsRequest, Kind};
use lull_web::{script, script_insertion};

/// How long a slow page stops in its middle when it is prefetched, unless it is awaited.
pub(crate) const STALL: Duration = Duration::from_secs(60);
/// The prefix of a path that must not be fetched before hover.
pub(crate) const POINTED: char = '>';
/// The separator before the path of a page that only leads there.
pub(crate) const BY: char = '<';
/// A page with copies that live for a second.
pub(crate) const SHORT_LIVED: &str = "/brief";
/// A page that was sent by a loaded server, with the wait that it states.
pub(crate) const LOADED: &str = "/loaded";
pub(crate) const WAIT: Duration = Duration::from_secs(8);
/// A page with a picture that takes three seconds to arrive.
pub(crate) const HEAVY: &str = "/heavy";
/// A service worker of the site, which caches everything, and takes over at once. With navigation preload,
/// uncached pages come as to a browser without one.
pub(crate) const WORKER: &str = "/own-worker.js";
const CACHE_FIRST: &str = "addEventListener('install', () => skipWaiting());
addEventListener('activate', event => event.waitUntil(
    registration.navigationPreload.enable().then(() => clients.claim())));
const answer = async ({request, preloadResponse}) => {
    const cache = await caches.open('own'), kept = await cache.match(request);
    if (kept) return kept;
    const reply = await preloadResponse || await fetch(request);
    if (request.method === 'GET' && reply.ok) await cache.put(request, reply.clone());
    return reply;
};
addEventListener('fetch', event => event.respondWith(answer(event)));";
/// A page with links in a shadow root and in a drawing.
pub(crate) const SHADOW: &str = "/shadow";
const SHADOW_LINKS: &str = "<div id=host><template shadowrootmode=open>
    <style>a { display: block; height: 40px } [rel] { display: none }</style>
    <a href=/inside>inside</a><a rel=nofollow href=/hidden>hidden</a></template></div>
    <svg id=drawing width=40 height=40><a href=/drawn><rect width=40 height=40 /></a></svg>";
/// A file that is downloaded, and not a page.
pub(crate) const DOWNLOAD: &str = "/file";
/// How long a test waits for a required event.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

/// A request, as the server behind the rules saw it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) connection: usize,
    pub(crate) ahead: bool,
    /// By speculation rules of the script.
    pub(crate) by_rules: bool,
    pub(crate) cookie: Option<String>,
    pub(crate) fields: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    pub(crate) asked: Vec<Asked>,
    /// Prefetches answered only by the rules, by their method and path, and their connection.
    pub(crate) refused: Vec<(Method, String, usize)>,
    /// Copies that a browser asked about, and whether it may use them.
    pub(crate) renewed: Vec<(String, bool)>,
    pub(crate) hints: Vec<HintsRequest>,
    pub(crate) visitors: Vec<Visitor>,
    pub(crate) beacons: Vec<Beacon>,
    pub(crate) cut_off: Vec<String>,
}

struct Shared {
    seen: Mutex<Recorded>,
    policy: Mutex<Policy>,
    hints: BTreeMap<String, Vec<String>>,
    csp: Option<String>,
    rules: bool,
    begun: Instant,
}

pub(crate) struct Site {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl Site {
    /// A site that hints these paths on each page.
    pub(crate) fn start(hints: &[(&str, &[&str])]) -> Self {
        Site::serve(hints, None, false)
    }

    /// A site whose pages are prefetched by speculation rules.
    pub(crate) fn by_rules(hints: &[(&str, &[&str])], csp: Option<&str>) -> Self {
        Site::serve(hints, csp.map(str::to_owned), true)
    }

    pub(crate) fn with_policy(hints: &[(&str, &[&str])], csp: &str) -> Self {
        Site::serve(hints, Some(csp.to_owned()), false)
    }

    fn serve(hints: &[(&str, &[&str])], csp: Option<String>, rules: bool) -> Self {
        let mut policy = Policy::new(Settings::default());
        policy.set_robots(Robots::fetched(404, b""));
        let owned = |paths: &[&str]| paths.iter().map(|&path| path.to_owned()).collect();
        let shared = Arc::new(Shared {
            seen: Mutex::default(),
            policy: Mutex::new(policy),
            hints: hints.iter().map(|(page, urls)| ((*page).to_owned(), owned(urls))).collect(),
            csp,
            rules,
            begun: Instant::now(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serving = Arc::clone(&shared);
        // It ends with the test's process and leaves nothing behind.
        thread::spawn(move || {
            for (connection, stream) in listener.incoming().enumerate() {
                let shared = Arc::clone(&serving);
                thread::spawn(move || drop(serve(&shared, stream.unwrap(), connection)));
            }
        });
        Site { shared, address }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn seen(&self) -> Recorded {
        self.shared.seen().clone()
    }

    pub(crate) fn count(&self, is: impl Fn(&Asked) -> bool) -> usize {
        self.shared.seen().asked.iter().filter(|asked| is(asked)).count()
    }

    pub(crate) fn is_barred(&self, path: &str) -> bool {
        self.shared.policy.lock().unwrap().may_hint(path, self.shared.now()).is_err()
    }

    /// The first such request, once it has arrived.
    pub(crate) fn wait_for(&self, is: impl Fn(&Asked) -> bool) -> Asked {
        self.wait_until("a request", |seen| seen.asked.iter().any(&is));
        self.seen().asked.into_iter().find(|asked| is(asked)).unwrap()
    }

    pub(crate) fn wait_until(&self, what: &str, is: impl Fn(&Recorded) -> bool) {
        let begun = Instant::now();
        while !is(&self.shared.seen()) {
            assert!(begun.elapsed() < TIMEOUT, "{what} never came: {:#?}", self.shared.seen());
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Recorded> {
        self.seen.lock().unwrap()
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.begun.elapsed()
    }
}

#[allow(clippy::disallowed_methods, reason = "the test is the daemon that reads the clock")]
fn wall() -> SystemTime {
    SystemTime::now()
}

/// The source of a prefetch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Script,
    Rules,
}

const CLIENT: Client = Client(1);

fn serve(shared: &Shared, stream: TcpStream, connection: usize) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    while let Some((mut request, body)) = read_request(&mut reader)? {
        let path = request.uri.path().to_owned();
        if path.starts_with("/.lull/") {
            shared.record(&request, connection, None);
            let (head, body) = shared.own(&request, &body);
            write_response(&mut stream, head, &body)?;
            continue;
        }
        let tags = policy::take_tags(&mut request.headers);
        let renewed = shared.policy.lock().unwrap().renew(&request, &tags, shared.now());
        if renewed.is_some() || policy::is_confirmation(&request.headers) {
            shared.seen().renewed.push((path, renewed.is_some()));
            write_response(&mut stream, renewed.unwrap_or_else(policy::refused), b"")?;
            continue;
        }
        let visitor = shared.policy.lock().unwrap().visitor(&request.headers);
        let by = shared.ahead(&request);
        let admitted = by.map(|by| {
            let policy = shared.policy.lock().unwrap();
            match by {
                By::Script => policy.admit(&request, CLIENT, shared.now()),
                By::Rules => policy.admit_by_rules(&request, CLIENT, shared.now()),
            }
        });
        let admitted = match admitted {
            Some(Err(_)) => {
                shared.seen().refused.push((request.method.clone(), path, connection));
                write_response(&mut stream, policy::refused(), b"")?;
                continue;
            }
            Some(Ok(admitted)) => {
                policy::upstream_request(&mut request.headers);
                Some(admitted)
            }
            None => None,
        };
        shared.record(&request, connection, by);
        if let Some(admitted) = admitted.as_ref().filter(|_| path == "/slow") {
            stall(shared, &mut stream, &request, admitted)?;
            return Ok(());
        }
        let (mut head, mut body) = shared.origin(&request);
        let insertion = script_insertion::decide(&request, "http", &head);
        let kept = {
            let mut policy = shared.policy.lock().unwrap();
            match &admitted {
                Some(admitted) => {
                    policy.admit_reply(admitted, &mut head, shared.now(), wall()).map(|_| true)
                }
                None => {
                    policy.observe(&request, false, false, CLIENT, &mut head, shared.now());
                    Ok(visitor.is_ok())
                }
            }
        };
        match kept {
            Ok(may_have_script) => {
                if let (true, Ok(insertion)) = (may_have_script, insertion) {
                    let wait = (path == LOADED).then_some(WAIT);
                    let insertion = insertion.offering_rules(shared.rules).waiting(wait);
                    insertion.rewrite_head(&mut head.headers);
                    let mut inserter = insertion.inserter();
                    let (mut page, mut rest) = (Vec::new(), body.as_slice());
                    while inserter.push(&mut rest, &mut page).unwrap() {}
                    inserter.finish(&mut page).unwrap();
                    body = page;
                }
                write_response(&mut stream, head, &body)?;
            }
            Err(_) => write_response(&mut stream, policy::refused(), b"")?,
        }
    }
    Ok(())
}

/// Sends the beginning of a reply, and nothing more for a long time, as over a full link; the rest once it is
/// awaited, if it may still be given then.
fn stall(
    shared: &Shared,
    stream: &mut TcpStream,
    request: &request::Parts,
    admitted: &Admitted,
) -> std::io::Result<()> {
    let path = request.uri.path();
    let (mut head, page) = shared.origin(request);
    let kept = shared.policy.lock().unwrap().admit_reply(admitted, &mut head, shared.now(), wall());
    if kept.is_err() {
        return write_response(stream, policy::refused(), b"");
    }
    let (first, rest) = page.split_at(20);
    stream.write_all(&[&head_of(&head, page.len()), first].concat())?;
    stream.set_read_timeout(Some(Duration::from_millis(20)))?;
    let begun = Instant::now();
    while begun.elapsed() < STALL {
        // The browser sends only its end on this connection.
        if stream.read(&mut [0; 16]).is_ok_and(|read| read == 0) {
            shared.seen().cut_off.push(path.to_owned());
            return Ok(());
        }
        let is_awaited = |beacon: &Beacon| beacon.awaits.as_deref() == Some(path);
        if shared.seen().beacons.iter().any(is_awaited) {
            return stream.write_all(rest);
        }
    }
    Ok(())
}

impl Shared {
    /// Whether a request is a prefetch of the script, and which.
    fn ahead(&self, request: &request::Parts) -> Option<By> {
        if request.headers.contains_key(policy::PREFETCH_HEADER) {
            return Some(By::Script);
        }
        (self.rules && policy::is_by_rules(&request.headers)).then_some(By::Rules)
    }

    fn record(&self, request: &request::Parts, connection: usize, by: Option<By>) {
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let fields =
            request.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        self.seen().asked.push(Asked {
            path: request.uri.path().to_owned(),
            connection,
            ahead: by.is_some(),
            by_rules: by == Some(By::Rules),
            cookie: request.headers.get("cookie").map(text),
            fields,
        });
    }

    /// The proxy's own answers.
    fn own(&self, request: &request::Parts, body: &[u8]) -> (response::Parts, Vec<u8>) {
        match request.uri.path() {
            path if path == script::script().path => {
                let fields = [
                    ("content-type", script::CONTENT_TYPE),
                    ("cache-control", script::CACHE_CONTROL),
                ];
                (head(200, &fields), script::script().body.clone().into_bytes())
            }
            protocol::HINTS_PATH => {
                let asked = HintsRequest::decode(body).unwrap();
                let visitor = self.policy.lock().unwrap().visitor(&request.headers);
                let reply = match visitor {
                    Ok(visitor) if !asked.barred => {
                        self.seen().visitors.push(visitor);
                        let urls = self.hints.get(&asked.page).filter(|_| asked.first);
                        let parted = urls.into_iter().flatten().map(|url| {
                            url.split_once(BY).map_or((&**url, None), |(url, by)| (url, Some(by)))
                        });
                        let hints = parted.map(|(url, by)| Hint {
                            by: by.map(str::to_owned),
                            url: url.trim_start_matches(POINTED).to_owned(),
                            kind: if url.ends_with(".svg") { Kind::Part } else { Kind::Document },
                            bytes: Some(100_000),
                            pointed: url.starts_with(POINTED),
                        });
                        let mark = policy::value_for_list(visitor).to_owned();
                        HintsReply::new(mark, hints.collect(), Some(Duration::from_secs(30)))
                            .by_rules(self.rules)
                    }
                    _ => HintsReply::never(),
                };
                self.seen().hints.push(asked);
                let fields = [("content-type", "application/json"), ("cache-control", "no-store")];
                (head(200, &fields), reply.encode().into_bytes())
            }
            protocol::BEACON_PATH => {
                self.seen().beacons.push(Beacon::decode(body).unwrap());
                (head(204, &[]), Vec::new())
            }
            path if path.starts_with("/.lull/to/") => {
                let url = path.trim_start_matches(protocol::LEAD_PATH);
                let led = self.policy.lock().unwrap().lead(request, url, self.now()).is_ok();
                if led {
                    (head(307, &[("location", url), ("cache-control", "no-store")]), Vec::new())
                } else {
                    (policy::refused(), Vec::new())
                }
            }
            _ => (head(404, &[]), Vec::new()),
        }
    }

    /// The site itself. It knows its signed-in users, and nothing about prefetching.
    fn origin(&self, request: &request::Parts) -> (response::Parts, Vec<u8>) {
        let path = request.uri.path();
        let cookies = request.headers.get("cookie").and_then(|value| value.to_str().ok());
        let who =
            if cookies.is_some_and(|all| all.contains("session=")) { "ann" } else { "nobody" };
        match path {
            "/sign-in" => (head(200, &[("set-cookie", "session=1; HttpOnly")]), b"in".to_vec()),
            "/moved" => (head(302, &[("location", "/sign-in")]), Vec::new()),
            "/favicon.ico" => (head(404, &[]), Vec::new()),
            WORKER => (head(200, &[("content-type", "text/javascript")]), CACHE_FIRST.into()),
            "/dot.svg" => {
                if request.uri.query() == Some("late") {
                    thread::sleep(Duration::from_secs(3));
                }
                let dot = "<svg xmlns='http://www.w3.org/2000/svg' width='1' height='1'/>";
                (head(200, &[("content-type", "image/svg+xml")]), dot.into())
            }
            DOWNLOAD => (head(200, &[("content-disposition", "attachment")]), b"saved".to_vec()),
            _ => {
                let dot = match path {
                    "/c" => "<img src=/dot.svg>",
                    HEAVY => "<img src=/dot.svg?late>",
                    SHADOW => SHADOW_LINKS,
                    _ => "",
                };
                let page = format!(
                    "<!doctype html><html><head><title>{path}</title></head><body>\
                     <p>page {path} for {who}</p><a id=b href=/b></a><a id=c href=/c></a>\
                     <a id=brief href={SHORT_LIVED}></a>{dot}\
                     <a id=file href={DOWNLOAD}></a><a id=slow href=/slow></a><a id=tab href=/slow target=_blank></a><a rel=nofollow href=/nofollow></a><a id=saved download href=/saved></a>\
                     <map><area data-lull=off href=/area></map>\
                     <svg width=1 height=1><a rel=nofollow href=/svg></a></svg>\
                     <style>a {{ display: block; height: 20px }}</style></body></html>"
                );
                let mut fields = vec![("content-type", "text/html; charset=utf-8")];
                if path == SHORT_LIVED {
                    fields.push(("cache-control", "max-age=1"));
                }
                if let Some(csp) = &self.csp {
                    fields.push(("content-security-policy", csp));
                }
                (head(200, &fields), page.into_bytes())
            }
        }
    }
}

fn head(status: u16, fields: &[(&str, &str)]) -> response::Parts {
    let mut response = Response::builder().status(status);
    for (name, value) in fields {
        response = response.header(*name, *value);
    }
    response.body(()).unwrap().into_parts().0
}

fn read_request(
    reader: &mut BufReader<TcpStream>,
) -> std::io::Result<Option<(request::Parts, Vec<u8>)>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let method: Method = words.next().unwrap().parse().unwrap();
    let mut request = Request::builder().method(method).uri(words.next().unwrap());
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        let name: HeaderName = name.parse().unwrap();
        if name == http::header::CONTENT_LENGTH {
            length = value.trim().parse().unwrap();
        }
        request = request.header(name, value.trim());
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some((request.body(()).unwrap().into_parts().0, body)))
}

fn write_response(
    stream: &mut TcpStream,
    head: response::Parts,
    body: &[u8],
) -> std::io::Result<()> {
    stream.write_all(&[&head_of(&head, body.len()), body].concat())
}

fn head_of(head: &response::Parts, length: usize) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {}\r\n", head.status).into_bytes();
    for (name, value) in &head.headers {
        text.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    if ![StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&head.status) {
        text.extend(format!("content-length: {length}\r\n").into_bytes());
    }
    text.extend(b"\r\n");
    text
}
