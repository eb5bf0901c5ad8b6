//! Sessions by HTTP: the state that a browser carries.

use lull_replication::token::{Keyring, TokenKey};
use lull_replication::types::Sequence;
use lull_replication_daemon::http::{Blocked, ReplicaHttp};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::site::{Site, runtime};

/// The head of the answer to a GET.
pub(crate) async fn get(address: SocketAddr, place: &str, cookie: Option<&str>) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a face");
    let cookie = cookie.map_or(String::new(), |token| format!("Cookie: lull-session={token}\r\n"));
    let request = format!("GET {place} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{cookie}\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("an answer");
    let answer = String::from_utf8(answer).expect("text");
    let (head, _) = answer.split_once("\r\n\r\n").expect("a head");
    head.to_owned()
}

fn status(head: &str) -> &str {
    head.split(' ').nth(1).expect("a status")
}

pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = head.lines().filter_map(|line| line.split_once(": "));
    pairs.find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

#[test]
fn redirected_browser_does_not_regress_on_return() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        let sequence = site.write(&[("page", Some(b"old"))]).await;
        site.reach(sequence).await;
        // Two ports of one replica, which is behind the state that the browser has seen elsewhere.
        let soon = Duration::from_millis(30);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let second = listener.local_addr().expect("an address");
        let replica = site.replica(0).clone();
        let other = ReplicaHttp::open(listener, replica.clone(), Blocked::Error(soon));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let first = listener.local_addr().expect("an address");
        let onward = format!("http://{second}").parse().expect("a URI");
        let face = ReplicaHttp::open(listener, replica, Blocked::Redirect(soon, onward));
        let token = site.replica(0).tokens().issue(sequence.next());
        let head = get(first, "/page?a=b", Some(&token)).await;
        assert_eq!(status(&head), "307", "{head}");
        let place = header(&head, "location").expect("where to go");
        let place = place.strip_prefix(&format!("http://{second}")).expect("the other one");
        // Without the cookie, which belongs to another host.
        let head = get(second, place, None).await;
        assert_eq!(status(&head), "503", "it would go back: {head}");
        let sequence = site.write(&[("page", Some(b"new"))]).await;
        site.reach(sequence).await;
        let head = get(second, place, None).await;
        assert_eq!(status(&head), "200", "{head}");
        let cookie = header(&head, "set-cookie").expect("the next page is asked for without query");
        assert!(cookie.starts_with(&format!("lull-session={token};")), "{cookie}");
        face.close().await;
        other.close().await;
        site.stop().await;
    });
}

#[test]
fn mutual_redirects_end_with_the_reason() {
    runtime().block_on(async {
        let mut site = Site::new(2).await;
        let sequence = site.write(&[("page", Some(b"one"))]).await;
        site.reach(sequence).await;
        let soon = Duration::from_millis(30);
        let bind = || TcpListener::bind("127.0.0.1:0");
        let listeners = [bind().await.expect("a port"), bind().await.expect("a port")];
        let addresses = listeners.each_ref().map(|one| one.local_addr().expect("an address"));
        let faces: Vec<_> = (0..2)
            .zip(listeners)
            .map(|(number, listener)| {
                let other = format!("http://{}", addresses[1 - number]).parse().expect("a URI");
                let blocked = Blocked::Redirect(soon, other);
                ReplicaHttp::open(listener, site.replica(number).clone(), blocked)
            })
            .collect();
        // Behind at both, with and without a seen state.
        let token = site.replica(0).tokens().issue(sequence.next());
        let head = get(addresses[0], "/page?a=b", Some(&token)).await;
        assert_eq!(status(&head), "307", "{head}");
        let place = header(&head, "location").expect("where to go");
        let place = place.strip_prefix(&format!("http://{}", addresses[1])).expect("the other one");
        let head = get(addresses[1], place, None).await;
        assert_eq!((status(&head), header(&head, "location")), ("503", None), "{head}");
        // An answerable request is answered, from any redirect.
        let sequence = site.write(&[("page", Some(b"two"))]).await;
        site.reach(sequence).await;
        assert_eq!(status(&get(addresses[1], place, None).await), "200");
        for face in faces {
            face.close().await;
        }
        site.stop().await;
    });
}

#[test]
fn cookie_of_another_origin_is_replaced() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        let sequence = site.write(&[("page", Some(b"one"))]).await;
        site.reach(sequence).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let face = ReplicaHttp::open(listener, site.replica(0).clone(), Blocked::Wait);
        let foreign = Keyring::new(TokenKey::new([7; 32]), None).issue(Sequence(70));
        let head = get(address, "/page", Some(&foreign)).await;
        assert_eq!(status(&head), "200", "{head}");
        let cookie = header(&head, "set-cookie").expect("a session cookie");
        let ours = cookie.split(['=', ';']).nth(1).expect("a token").to_owned();
        assert_eq!(site.replica(0).tokens().verify(&ours), Ok(sequence));
        let head = get(address, "/page", Some(&ours)).await;
        assert_eq!((status(&head), header(&head, "set-cookie")), ("200", None));
        face.close().await;
        site.stop().await;
    });
}
