//! The class of a connection with many requests in progress.

use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::*;

type Asking = SendRequest<Empty<bytes::Bytes>>;

/// One request of many on a connection: a prefetch, or a visitor's.
async fn ask(sender: &Asking, path: &str, is_ahead: bool) -> Response<Incoming> {
    let request = Request::get(format!("http://site.example{path}"))
        .header("user-agent", CHROME)
        .header("accept", "text/html");
    let request = if is_ahead { request.header("x-lull", "1") } else { request };
    let mut sender = sender.clone();
    sender.ready().await.unwrap();
    let answer = sender.send_request(request.body(Empty::new()).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 200, "{path}");
    answer
}

async fn whole(answer: Response<Incoming>) {
    answer.into_body().collect().await.unwrap();
}

/// [`until`] in a task that must not delay the others.
async fn until_in_a_task(is: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < LIMIT);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn demand_beside_a_prefetch_stays_in_the_foreground() {
    let (address, go_on) = slow_upstream("/slow");
    let site = Watching::new();
    let proxy = site.in_front_of(address);
    until(|| proxy.exchange(prefetch("/.-known", "1", "")).status() == 200);
    site.1.lock().unwrap().clear();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(proxy.address()).await.unwrap();
        let (sender, driver): (Asking, _) =
            handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(driver);
        let background = Some(Carrier::UserSpace);

        let slow = ask(&sender, "/slow-demand", false).await;
        let connection = Arc::clone(&site.1.lock().unwrap()[0].0);
        // Each was answered, so the connection is in its final place.
        whole(ask(&sender, "/b", true).await).await;
        assert_eq!(connection.carrier(), None);
        let ahead = ask(&sender, "/slow-ahead", true).await;
        assert_eq!(connection.carrier(), None);
        // When no visitor waits any more, prefetches yield.
        go_on.send(()).unwrap();
        whole(slow).await;
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        whole(ask(&sender, "/c", true).await).await;
        assert_eq!(connection.carrier(), background);

        // And until it is awaited, even if another tab prefetches beside it.
        awaits(&proxy, "/slow-ahead");
        until_in_a_task(|| connection.carrier().is_none()).await;
        whole(ask(&sender, "/d", true).await).await;
        assert_eq!(connection.carrier(), None);
        let ended = std::time::Instant::now();
        go_on.send(()).unwrap();
        whole(ahead).await;
        // Its rest in the buffers leaves first, for a second.
        whole(ask(&sender, "/e", true).await).await;
        if ended.elapsed() < Duration::from_millis(700) {
            assert_eq!(connection.carrier(), None);
        }
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        whole(ask(&sender, "/f", true).await).await;
        assert_eq!(connection.carrier(), background);
    });
}
