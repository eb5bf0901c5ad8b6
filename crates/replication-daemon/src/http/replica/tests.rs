//! The contents of headers, and the age that they state.

use std::sync::atomic::{AtomicU64, Ordering};

use lull_replication::origin::{Put, Transaction};
use lull_replication::replica::WaitReason;
use lull_replication::time::Reading as Shown;
use lull_replication::token::TokenKey;

use super::*;
use crate::daemon::testing::origin_and_replica;
use crate::daemon::{Clock, MachineClock};

/// The machine's clocks, ahead by this many seconds.
#[derive(Debug, Default)]
struct Ahead(AtomicU64);

impl Clock for Ahead {
    fn read(&self) -> Shown {
        let Shown { local, wall } = MachineClock.read();
        let by = Duration::from_secs(self.0.load(Ordering::Relaxed));
        Shown { local: local.plus(by), wall: wall.plus(by) }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unanswerable_read_is_redirected_once() {
    let folder = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(MachineClock);
    let (origin, daemon) = origin_and_replica(folder.path(), "paris", &clock).await;
    let service = |blocked| ReplicaHttp { replica: daemon.handle(), blocked, shows: Shows::Both };
    let patience = Duration::from_secs(1);
    let errs = service(Blocked::Error(patience));
    let sends = service(Blocked::Redirect(patience, Uri::from_static("http://other:1")));
    let (uri, sent) = (Uri::from_static("/a"), Uri::from_static("/a?lull-session=it"));
    for (error, can_elsewhere) in [
        (ReadError::Waits(WaitReason::Invalid), true),
        (ReadError::Evicted, true),
        (ReadError::Scarce, true),
        (ReadError::Lost, false),
        (ReadError::Stopped, false),
    ] {
        let answer = sends.unanswered(error, &uri, ClientState::default());
        assert_eq!(answer.status() == StatusCode::TEMPORARY_REDIRECT, can_elsewhere, "{error:?}");
        let place = answer.headers().get(header::LOCATION).and_then(|place| place.to_str().ok());
        let goes = place.is_some_and(|place| place.starts_with("http://other:1/a?lull-session="));
        assert_eq!(goes, can_elsewhere, "{error:?}: {place:?}");
        let status = if error == ReadError::Lost {
            StatusCode::BAD_GATEWAY
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        for answer in [
            sends.unanswered(error, &sent, ClientState::default()),
            errs.unanswered(error, &uri, ClientState::default()),
        ] {
            assert_eq!(answer.status(), status, "{error:?}");
        }
    }
    daemon.stop().await.unwrap();
    origin.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn age_counts_from_the_read_despite_a_slow_body() {
    const LIMIT: Duration = Duration::from_secs(30);
    let folder = tempfile::tempdir().unwrap();
    let ahead = Arc::new(Ahead::default());
    let clock: Arc<dyn Clock> = Arc::<Ahead>::clone(&ahead);
    let (origin, daemon) = origin_and_replica(folder.path(), "paris", &clock).await;
    let handle = origin.handle();
    let replica = daemon.handle();
    let path = Path::new("a").unwrap();
    let mut stager = handle.bodies().stage();
    stager.write(b"1").unwrap().unwrap();
    let put = Put::Body(stager.finish().unwrap().unwrap(), Metadata::default());
    let changes = [(path.clone(), put)].into();
    let at = handle.write(Transaction { changes }).await.unwrap();
    let (_, found) = replica.object(&path, at, Some(LIMIT)).await.unwrap();
    // The origin was heard while the body was looked up, and would have announced newer state.
    ahead.0.store(5, Ordering::Relaxed);
    let heard = async {
        while replica.staleness().is_none_or(|staleness| staleness > Duration::from_secs(3)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LIMIT, heard).await.expect("a heartbeat");
    let service = ReplicaHttp { replica, blocked: Blocked::Wait, shows: Shows::Both };
    let response = service.found(found.expect("it is there"), &path, &Request::new(()));
    let age = response.headers()[header::AGE].to_str().unwrap();
    assert!(age.parse::<u64>().unwrap() >= 5, "{age} s");
    daemon.stop().await.unwrap();
    origin.stop().await.unwrap();
}

#[test]
fn range_is_parsed_as_in_the_rfc() {
    for (text, expected) in [
        ("bytes=0-0", Ranged::Part(0, 1)),
        ("bytes=2-", Ranged::Part(2, 10)),
        ("bytes=-3", Ranged::Part(7, 10)),
        ("bytes=-30", Ranged::Part(0, 10)),
        ("bytes=5-100", Ranged::Part(5, 10)),
        ("bytes=10-", Ranged::Outside),
        ("bytes=-0", Ranged::Outside),
        ("bytes=5-4", Ranged::All),
        ("bytes=0-1,3-4", Ranged::All),
        ("lines=0-1", Ranged::All),
        ("bytes=-", Ranged::All),
        ("bytes=a-b", Ranged::All),
    ] {
        assert_eq!(ranged(text, 10), expected, "{text}");
    }
    assert_eq!(ranged("bytes=0-", 0), Ranged::Outside);
}

#[test]
fn age_is_rounded_up() {
    for (ms, seconds) in [(0, 0), (1, 1), (999, 1), (1_000, 1), (1_001, 2)] {
        assert_eq!(whole_seconds(Duration::from_millis(ms)), seconds, "{ms} ms");
    }
}

#[test]
fn session_token_comes_by_header_cookie_or_query() {
    let ring = |byte| Keyring::new(TokenKey::new([byte; 32]), None);
    let (ours, theirs) = (ring(1), ring(2));
    let token = |at| ours.issue(Sequence(at));
    let foreign = theirs.issue(Sequence(9));
    let seen = |at, kept, is_reissued| {
        Ok(ClientState { at: Sequence(at), kept: Sequence(kept), is_reissued })
    };
    for (header, cookie, query, expected) in [
        (None, None, None, seen(0, 0, false)),
        (Some(token(3)), None, None, seen(3, 3, false)),
        (None, Some(token(4)), None, seen(4, 4, false)),
        (Some(token(3)), Some(token(4)), None, seen(4, 4, false)),
        (None, None, Some(token(5)), seen(5, 0, false)),
        (None, Some(token(6)), Some(token(5)), seen(6, 6, false)),
        (None, Some(token(4)), Some(token(5)), seen(5, 4, false)),
        (Some(foreign.clone()), None, None, Err(TokenError::Forged)),
        (Some("7".to_owned()), Some(token(4)), None, Err(TokenError::Malformed)),
        (None, Some(foreign.clone()), None, seen(0, 0, true)),
        (Some(token(3)), Some(foreign.clone()), None, seen(3, 3, true)),
        (None, None, Some(foreign), seen(0, 0, false)),
    ] {
        let uri = query.map_or("/a?b=1".to_owned(), |token| format!("/a?b=1&{COOKIE}={token}"));
        let mut request = Request::builder().uri(uri);
        if let Some(header) = header {
            request = request.header(SESSION, header);
        }
        if let Some(cookie) = cookie {
            request = request.header(header::COOKIE, format!("a=1; {COOKIE}={cookie}; b=3"));
        }
        let request = request.body(()).expect("a request");
        assert_eq!(ClientState::from_request(&request, &ours), expected, "{request:?}");
    }
    let request = Request::builder().header(SESSION, &b"\xff"[..]).body(());
    let request = request.expect("a request");
    assert_eq!(ClientState::from_request(&request, &ours), Err(TokenError::Malformed));
}

#[test]
fn cookie_of_an_old_key_is_reissued() {
    let key = |byte| TokenKey::new([byte; 32]);
    let token = Keyring::new(key(1), None).issue(Sequence(4));
    let request = Request::builder().header(header::COOKIE, format!("{COOKIE}={token}"));
    let request = request.body(()).expect("a request");
    for (ring, is_reissued) in
        [(Keyring::new(key(1), Some(key(2))), false), (Keyring::new(key(2), Some(key(1))), true)]
    {
        let (at, kept) = (Sequence(4), Sequence(4));
        assert_eq!(
            ClientState::from_request(&request, &ring),
            Ok(ClientState { at, kept, is_reissued })
        );
    }
}

#[test]
fn token_is_passed_to_another_replica_once() {
    for (uri, expected) in [
        ("/a/b", "http://other:1/a/b?lull-session=new"),
        ("/a?c=d", "http://other:1/a?c=d&lull-session=new"),
        ("/a?lull-session=old&c=d", "http://other:1/a?c=d&lull-session=new"),
        ("/", "http://other:1/?lull-session=new"),
    ] {
        let other = Uri::from_static("http://other:1/");
        let place = elsewhere(&other, &Uri::from_static(uri), "new");
        assert_eq!(place, expected);
        assert!(was_sent_here(&place.parse().expect("a URI")), "{place}");
    }
    assert!(!was_sent_here(&Uri::from_static("/a?c=lull-session&lull-sessions=7")));
}
