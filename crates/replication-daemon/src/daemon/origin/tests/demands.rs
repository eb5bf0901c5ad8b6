//! Demanded bodies, sent to a replica that the tests control.

use lull_cc::Bytes;
use lull_replication::wire::{Assembly, Delivery};

use super::*;

/// More than all buffers between the two sides take.
const LARGE: usize = 64 << 20;
/// The maximum number of bytes in buffers.
const BUFFERS: u64 = 16 << 20;

/// The receiving side of a channel of bodies.
struct Demanded<S> {
    incoming: Incoming<S, BodyPart>,
    assembly: Assembly,
    /// Bytes of bodies that have arrived.
    bytes: u64,
}

impl<S: AsyncRead + Unpin> Demanded<S> {
    fn new(stream: S) -> Self {
        Demanded { incoming: Incoming::new(stream), assembly: Assembly::default(), bytes: 0 }
    }

    /// Receives the next part. Returns the object, if this part ends its body, and whether it is intact.
    async fn part(&mut self) -> Option<(String, bool)> {
        let part = soon(self.incoming.next()).await.unwrap().message;
        match self.assembly.handle(part).unwrap().1 {
            Delivery::More | Delivery::Chunks(..) => None,
            Delivery::Bytes(bytes) => {
                self.bytes += bytes.len() as u64;
                None
            }
            Delivery::Complete { header, last, intact } => {
                self.bytes += last.len() as u64;
                Some((header.path.to_string(), intact))
            }
        }
    }

    /// The next body that ends.
    async fn end(&mut self) -> (String, bool) {
        loop {
            if let Some(end) = self.part().await {
                return end;
            }
        }
    }
}

/// Waits for this condition, with the usual limit.
async fn until(holds: impl Fn() -> bool) -> Result<(), LinkError> {
    soon(async {
        while !holds() {
            sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    })
    .await
}

/// A replica of an origin with these files, which pushes none.
async fn demanding(
    files: &[(&str, usize)],
) -> (Site, Session, [impl AsyncRead + AsyncWrite + Unpin + Send + use<>; 3]) {
    attached(Strategy::DemandOnly, files).await
}

/// A replica of an origin with these files.
async fn attached(
    strategy: Strategy,
    files: &[(&str, usize)],
) -> (Site, Session, [impl AsyncRead + AsyncWrite + Unpin + Send + use<>; 3]) {
    let site = Site::of(|options| options.config.strategy = strategy).await;
    let origin = site.daemon.handle();
    let begin = Some(origin.tree().position);
    write(&origin, files).await;
    let (_, session, channels) = site.attach("replica", begin).await;
    (site, session, channels)
}

fn ask(name: &str) -> ToOrigin {
    ToOrigin::Demand(Path::new(name).unwrap())
}

fn withdraw(name: &str) -> ToOrigin {
    ToOrigin::Withdraw(Path::new(name).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn short_body_overtakes_a_long_one_in_flight() {
    let files = [("large", LARGE), ("middle", 1 << 20), ("small", 1_000)];
    let (site, session, [mut control, demand, _speculative]) = demanding(&files).await;
    say(&mut control, session, ask("large")).await.unwrap();
    let mut demanded = Demanded::new(demand);
    while demanded.bytes == 0 {
        assert_eq!(demanded.part().await, None);
    }
    say(&mut control, session, ask("middle")).await.unwrap();
    say(&mut control, session, ask("small")).await.unwrap();
    for (count, expected) in (1..).zip(["small", "middle"]) {
        assert_eq!(demanded.end().await, (expected.to_owned(), true));
        assert!(demanded.bytes < BUFFERS, "{} came before `{expected}`", demanded.bytes);
        say(&mut control, session, ToOrigin::Fetched(count)).await.unwrap();
    }
    say(&mut control, session, ask("none")).await.unwrap();
    assert_eq!(demanded.end().await, ("none".to_owned(), true));
    assert_eq!(demanded.end().await, ("large".to_owned(), true), "and it comes all the same");
    say(&mut control, session, ToOrigin::Fetched(4)).await.unwrap();
    say(&mut control, session, ask("small")).await.unwrap();
    assert_eq!(demanded.end().await, ("small".to_owned(), true), "all that was said was right");
    site.daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn body_without_a_waiting_read_is_cancelled() {
    let files = [("large", LARGE), ("other", LARGE), ("small", 1_000)];
    let (site, session, [mut control, demand, _speculative]) = demanding(&files).await;
    say(&mut control, session, ask("large")).await.unwrap();
    let mut demanded = Demanded::new(demand);
    while demanded.bytes == 0 {
        assert_eq!(demanded.part().await, None);
    }
    // Its lane is taken, so nothing of this one has left.
    say(&mut control, session, ask("other")).await.unwrap();
    say(&mut control, session, withdraw("other")).await.unwrap();
    let (read, mut control) = split(control);
    let mut told = Incoming::<_, ToReplica>::new(read);
    loop {
        match soon(told.next()).await.unwrap().message {
            ToReplica::Withdrawn(path) => break assert_eq!(path.to_string(), "other"),
            ToReplica::Refused(why) => panic!("{why}"),
            _ => {}
        }
    }
    for _ in 0..2 {
        say(&mut control, session, withdraw("large")).await.unwrap();
    }
    assert_eq!(demanded.end().await, ("large".to_owned(), false));
    assert!(demanded.bytes < 2 * BUFFERS, "{} came without a reader", demanded.bytes);
    say(&mut control, session, ToOrigin::Fetched(1)).await.unwrap();
    // A new request gets it.
    for name in ["small", "large"] {
        say(&mut control, session, ask(name)).await.unwrap();
        assert_eq!(demanded.end().await, (name.to_owned(), true));
    }
    let sent = of(&site.daemon.handle(), "replica").demand_bytes;
    assert!(sent < LARGE as u64 + 3 * BUFFERS, "{sent} were sent");
    site.daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn push_is_cancelled_when_a_read_gets_the_whole_body() {
    let files = [("large", LARGE)];
    let (site, session, [mut control, demand, speculative]) =
        attached(Strategy::Trip, &files).await;
    let mut pushed = Demanded::new(speculative);
    while pushed.bytes == 0 {
        assert_eq!(pushed.part().await, None);
    }
    say(&mut control, session, ask("large")).await.unwrap();
    let mut demanded = Demanded::new(demand);
    while demanded.bytes == 0 {
        assert_eq!(demanded.part().await, None);
    }
    assert_eq!(pushed.end().await, ("large".to_owned(), false));
    assert!(pushed.bytes < BUFFERS, "{} came twice", pushed.bytes);
    say(&mut control, session, ToOrigin::Taken(1)).await.unwrap();
    assert_eq!(demanded.end().await, ("large".to_owned(), true));
    say(&mut control, session, ToOrigin::Fetched(1)).await.unwrap();
    let status = of(&site.daemon.handle(), "replica");
    assert_eq!((status.connected, status.queue), (true, Some(0)), "nothing is left to be pushed");
    let sent = status.demand_bytes;
    assert!(sent < LARGE as u64 + 1_000_000, "{sent} were sent to the read");
    site.daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_demand_and_withdrawal_leaves_no_tasks() {
    const TIMES: usize = 50;
    let files = [("large", 1 << 20)];
    let (site, session, [mut control, demand, _speculative]) = demanding(&files).await;
    // The reading thread is kept busy, so no byte of it leaves for now.
    let origin = site.daemon.handle();
    let busy = origin.0.outlines.keep_busy(Bytes(1 << 20)).await;
    let mut demanded = Demanded::new(demand);
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let mut before = None;
    for count in 1..=TIMES {
        say(&mut control, session, ask("large")).await.unwrap();
        // It is handed out by then. Otherwise it would be confirmed as withdrawn, and have no end here.
        until(|| origin.status().demands >= count as u64).await.unwrap();
        say(&mut control, session, withdraw("large")).await.unwrap();
        assert_eq!(demanded.end().await, ("large".to_owned(), false));
        say(&mut control, session, ToOrigin::Fetched(count as u64)).await.unwrap();
        before = before.or(Some(tasks()));
    }
    let before = before.unwrap();
    until(|| tasks() <= before + 2)
        .await
        .unwrap_or_else(|_| panic!("{} tasks after {TIMES} times, {before} after one", tasks()));
    // A new request gets it.
    say(&mut control, session, ask("large")).await.unwrap();
    drop(busy);
    assert_eq!(demanded.end().await, ("large".to_owned(), true));
    site.daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn withdrawn_bodies_are_not_read_from_disk() {
    const MANY: usize = 30;
    let names: Vec<String> = (0..=MANY).map(|number| format!("large-{number}")).collect();
    let name = |number: usize| &*names[number];
    // All are of one lane, and each has another body.
    let files: Vec<_> = (0..=MANY).map(|number| (name(number), (1 << 20) + number)).collect();
    let (site, session, [mut control, demand, _speculative]) = demanding(&files).await;
    let origin = site.daemon.handle();
    let outlines = &origin.0.outlines;
    let busy = outlines.keep_busy(Bytes(1 << 20)).await;
    let mut demanded = Demanded::new(demand);
    for number in 0..MANY {
        say(&mut control, session, ask(name(number))).await.unwrap();
        // Handed out, and waiting to be read.
        until(|| outlines.count().1 > number).await.unwrap();
        say(&mut control, session, withdraw(name(number))).await.unwrap();
        assert_eq!(demanded.end().await, (name(number).to_owned(), false));
        say(&mut control, session, ToOrigin::Fetched(number as u64 + 1)).await.unwrap();
    }
    // The end of a body may be here before the origin has released what it waited for.
    until(|| outlines.waiting() == 0).await.unwrap();
    say(&mut control, session, ask(name(MANY))).await.unwrap();
    drop(busy);
    assert_eq!(demanded.end().await, (name(MANY).to_owned(), true));
    say(&mut control, session, ToOrigin::Fetched(MANY as u64 + 1)).await.unwrap();
    until(|| outlines.count().1 == 0).await.unwrap();
    assert_eq!(outlines.count().0, 1, "others were read, too");
    // A cancelled body is read when it is demanded again.
    say(&mut control, session, ask(name(0))).await.unwrap();
    assert_eq!(demanded.end().await, (name(0).to_owned(), true));
    site.daemon.stop().await.unwrap();
}
