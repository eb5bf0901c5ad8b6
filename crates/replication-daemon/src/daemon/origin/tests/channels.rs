//! Access to the channels.

use super::*;
use crate::identity::Joining;

/// Connects, and sends the hello of a replica that has everything.
async fn greet(
    site: &Site,
    identity: &ReplicaIdentity,
) -> (impl AsyncRead + AsyncWrite + Unpin + use<>, Session) {
    let mut control = site.connect(identity, Channel::Control).await.unwrap();
    let origin = site.daemon.handle();
    let replica = identity.replica();
    let position = origin.tree().position;
    let committed = position.sequence;
    let hello = ToOrigin::Hello {
        protocol: PROTOCOL,
        replica,
        position: Some(position),
        committed,
        only: Subscription::default(),
    };
    let session = Session { replica: Incarnation(7), connection: 1, ..Session::default() };
    say(&mut control, session, hello).await.unwrap();
    let session = soon(async {
        loop {
            let found = origin.0.with(|core, _| core.links.get(&replica).map(|link| link.session));
            match found {
                Some(session) => return Ok(session),
                None => sleep(Duration::from_millis(2)).await,
            }
        }
    });
    (control, session.await.unwrap())
}

/// Whether the origin closes a channel of bodies attached like this, and sends nothing on it.
async fn is_refused(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    session: Session,
) -> Result<(), String> {
    let answer = ask::<BodyPart>(stream, session, Attach).await;
    if is_closed(&answer) { Ok(()) } else { Err(format!("{answer:?}")) }
}

/// Reads a channel of bodies until that of an object begins.
async fn comes<S: AsyncRead + Unpin>(channel: &mut Incoming<S, BodyPart>, name: &str) {
    loop {
        if let BodyPart::Header(header) = soon(channel.next()).await.unwrap().message
            && header.path.as_bytes() == name.as_bytes()
        {
            return;
        }
    }
}

fn demand(name: &str) -> ToOrigin {
    ToOrigin::Demand(Path::new(name).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn peer_without_a_certificate_can_only_enrol() {
    let site = Site::new().await;
    let origin = site.daemon.handle();
    let address = site.daemon.address().to_string();
    // A replica whose channels of bodies are unattached, and a body to be sent on them.
    let identity = site.join_as("replica", "replica").await;
    let (mut control, session) = greet(&site, &identity).await;
    write(&origin, &[("a", 100), ("b", 100)]).await;
    say(&mut control, session, demand("a")).await.unwrap();

    let ticket = origin.ticket("newcomer", &address, Duration::from_secs(60)).unwrap();
    let number = ticket.replica;
    let joining = Joining::new(ticket).unwrap();
    let dial =
        |channel| dial(&address, joining.connect(certificate_time(&site.clock)).unwrap(), channel);
    let newer = Session { replica: Incarnation(8), ..Session::default() };
    // Neither under its own number nor under that of the other replica.
    for replica in [number, identity.replica()] {
        let (position, committed) = (None, Sequence::ZERO);
        let hello = ToOrigin::Hello {
            protocol: PROTOCOL,
            replica,
            position,
            committed,
            only: Subscription::default(),
        };
        let stream = dial(Channel::Control).await.unwrap();
        let answer = ask::<ToReplica>(stream, newer, hello).await;
        assert!(is_closed(&answer), "{replica:?}: {answer:?}");
    }
    for channel in [Channel::Demand, Channel::Speculative] {
        for session in [newer, session] {
            let stream = dial(channel).await.unwrap();
            assert_eq!(is_refused(stream, session).await, Ok(()), "{channel:?}");
        }
    }
    let links: Vec<_> = origin.0.with(|core, _| {
        core.links.iter().map(|(replica, link)| (*replica, link.session)).collect()
    });
    assert_eq!(links, [(identity.replica(), session)]);
    // The refused channel is free for the other one, and its ticket is still valid.
    let mut attached = Vec::new();
    for (channel, name) in [(Channel::Speculative, "b"), (Channel::Demand, "a")] {
        let mut stream = site.connect(&identity, channel).await.unwrap();
        say(&mut stream, session, Attach).await.unwrap();
        let mut channel = Incoming::new(stream);
        comes(&mut channel, name).await;
        attached.push(channel);
    }
    let stream = dial(Channel::Enrolment).await.unwrap();
    let question = ToAuthority::Enrol(joining.enrol());
    let answer = ask::<FromAuthority>(stream, Session::default(), question).await;
    assert!(matches!(answer, Ok(FromAuthority::Enrolled(_))), "{answer:?}");
    site.daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn body_channel_attaches_once_and_only_to_its_session() {
    let site = Site::new().await;
    let origin = site.daemon.handle();
    let begin = Some(origin.tree().position);
    let (_, one, [mut control, demanded, speculative]) = site.attach("one", begin).await;
    let identity = site.join_as("other", "other").await;
    let stream = site.connect(&identity, Channel::Demand).await.unwrap();
    assert_eq!(is_refused(stream, one).await, Ok(()), "it has no session itself");
    let (mut other_control, other) = greet(&site, &identity).await;
    assert_ne!(one, other);
    let before = Session { replica: Incarnation(other.replica.0 - 1), ..other };
    for channel in [Channel::Demand, Channel::Speculative] {
        for session in [one, before] {
            let stream = site.connect(&identity, channel).await.unwrap();
            assert_eq!(is_refused(stream, session).await, Ok(()), "{channel:?}: {session:?}");
        }
    }
    write(&origin, &[("a", 100), ("b", 100)]).await;
    say(&mut other_control, other, demand("a")).await.unwrap();
    let mut attached = Vec::new();
    for (channel, name) in [(Channel::Demand, "a"), (Channel::Speculative, "b")] {
        let mut stream = site.connect(&identity, channel).await.unwrap();
        say(&mut stream, other, Attach).await.unwrap();
        let mut first = Incoming::new(stream);
        comes(&mut first, name).await;
        let second = site.connect(&identity, channel).await.unwrap();
        assert_eq!(is_refused(second, other).await, Ok(()), "{channel:?}: once more");
        attached.push(first);
    }
    // Both continue on their own channels.
    write(&origin, &[("c", 100), ("d", 100)]).await;
    say(&mut control, one, demand("a")).await.unwrap();
    say(&mut other_control, other, demand("c")).await.unwrap();
    comes(&mut Incoming::new(demanded), "a").await;
    comes(&mut Incoming::new(speculative), "d").await;
    for (channel, name) in attached.iter_mut().zip(["c", "d"]) {
        comes(channel, name).await;
    }
    site.daemon.stop().await.unwrap();
}
