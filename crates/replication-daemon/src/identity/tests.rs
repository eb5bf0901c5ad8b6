//! Handshakes without a network: the bytes of one side are handed to the other.

mod neighbours;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use lull_replication::token::{Keyring, TokenError};
use lull_replication::types::{ReplicaId, Sequence};
use rustls::pki_types::{ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::version::{TLS12, TLS13};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, ConnectionCommon, Error, RootCertStore,
    ServerConfig, ServerConnection,
};
use tempfile::TempDir;

use super::*;

const DAY: u64 = 86_400;
/// Some state.
const FIVE: Sequence = Sequence(5);
/// Some day.
const START: u64 = 20_000 * DAY;

fn at(days: u64) -> WallTime {
    WallTime::from_nanos(((START + days * DAY) * 1_000_000_000) as i64)
}

#[derive(Debug)]
struct Clock(u64);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(START + self.0 * DAY)))
    }
}

fn clock(days: u64) -> Arc<Clock> {
    Arc::new(Clock(days))
}

fn transfer<A, B>(
    from: &mut ConnectionCommon<A>,
    to: &mut ConnectionCommon<B>,
) -> Result<bool, Error> {
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes).expect("a vector takes everything");
    }
    let moved = !bytes.is_empty();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        to.read_tls(&mut rest).expect("a slice gives everything");
        to.process_new_packets()?;
    }
    Ok(moved)
}

/// Performs the handshake; returns the server's side, or the error of the objecting side.
fn shake(
    (client, name): (Arc<ClientConfig>, ServerName<'static>),
    server: Arc<ServerConfig>,
) -> Result<ServerConnection, Error> {
    let mut client = ClientConnection::new(client, name)?;
    let mut server = ServerConnection::new(server)?;
    while transfer(&mut client, &mut server)? | transfer(&mut server, &mut client)? {}
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok(server)
}

struct World {
    folder: TempDir,
    origin: OriginIdentity,
}

impl World {
    fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        let origin = OriginIdentity::create(&folder.path().join("origin"), at(0));
        World { origin: origin.expect("an empty folder"), folder }
    }

    fn ticket(&mut self, name: &str) -> Ticket {
        let valid = Duration::from_secs(7 * DAY);
        self.origin.ticket(name, "origin.example:4711", at(0), valid).expect("it can be written")
    }

    fn join(&mut self, name: &str) -> ReplicaIdentity {
        let joining = Joining::new(self.ticket(name)).expect("a key");
        let enrolled = self.origin.enrol(&joining.enrol(), at(0)).expect("a good ticket");
        let number = fs::read_dir(self.folder.path()).expect("a folder").count();
        let folder = self.folder.path().join(format!("{name}-{number}"));
        joining.finish(&folder, enrolled, at(0)).expect("an empty folder")
    }

    /// The origin's answer to a replica that connects.
    fn connect(&mut self, replica: &ReplicaIdentity, day: u64) -> Result<Peer, String> {
        let client = replica.connect(clock(day)).expect("good keys");
        let server = self.origin.accept(clock(day)).expect("good keys");
        let server = shake(client, server).map_err(|error| error.to_string())?;
        self.origin.admit(server.peer_certificates()).map_err(|error| error.to_string())
    }
}

#[test]
fn ticket_lets_one_replica_join_once() {
    let mut world = World::new();
    let text = world.ticket("berlin").to_string();
    let joining = Joining::new(text.parse().expect("a ticket")).expect("a key");
    let client = joining.connect(clock(0)).expect("good keys");
    let server = world.origin.accept(clock(0)).expect("good keys");
    let server = shake(client, server).expect("the origin of the ticket");
    assert_eq!(world.origin.admit(server.peer_certificates()), Ok(Peer::Newcomer));
    let enrol = joining.enrol();
    let enrolled = world.origin.enrol(&enrol, at(1)).expect("a good ticket");
    let folder = world.folder.path().join("berlin");
    let replica = joining.finish(&folder, enrolled, at(1)).expect("an empty folder");
    assert_eq!(world.connect(&replica, 1), Ok(Peer::Replica(ReplicaId(0))));
    assert!(matches!(
        world.origin.enrol(&enrol, at(1)),
        Err(EnrolError::Refused(NotEnrolled::Ticket))
    ));
    // Both sides know it from their files.
    let again = ReplicaIdentity::open(&folder).expect("it was written");
    world.origin =
        OriginIdentity::open(&world.folder.path().join("origin"), at(2)).expect("it was written");
    assert_eq!(world.connect(&again, 2), Ok(Peer::Replica(ReplicaId(0))));
    assert_eq!((again.replica(), again.address()), (ReplicaId(0), "origin.example:4711"));
    let token = world.origin.keyring().issue(FIVE);
    assert_eq!(again.keyring().verify(&token), Ok(FIVE));
}

#[test]
fn tickets_and_replicas_accept_only_connectable_addresses() {
    let mut world = World::new();
    let longest = format!("{}:7070", "x".repeat(295));
    let longer = format!("x{longest}");
    let valid = Duration::from_secs(60);
    for wrong in [
        "",
        "origin.example",
        ":7070",
        "origin.example:",
        "a:0",
        "a:65536",
        "a b:7",
        "::1",
        &longer,
    ] {
        let refused = world.origin.ticket("berlin", wrong, at(0), valid);
        assert!(matches!(refused, Err(IdentityError::Address(_))), "{wrong}: {refused:?}");
        let said = refused.map_err(|error| error.to_string()).unwrap_err();
        assert!(!said.contains('\n') && said.contains(": "), "{said}");
    }
    assert_eq!(world.origin.replicas().count(), 0, "and no replica is admitted");
    for right in ["origin.example:7070", "192.0.2.1:7", "[::1]:7070", &longest] {
        let ticket = world.origin.ticket("berlin", right, at(0), valid).expect("an address");
        assert_eq!(ticket.to_string().parse(), Ok(ticket), "{right}");
    }
    let mut replica = world.join("berlin");
    let refused = replica.set_address("origin.example");
    assert!(matches!(refused, Err(IdentityError::Address(_))), "{refused:?}");
}

#[test]
fn invalid_ticket_is_rejected() {
    let (mut world, mut other) = (World::new(), World::new());
    let good = world.ticket("berlin");
    let enrol = |ticket: &Ticket| Joining::new(ticket.clone()).expect("a key").enrol();
    for ticket in [
        Ticket { secret: [0; 32], ..good.clone() },
        Ticket { replica: ReplicaId(7), ..good.clone() },
        other.ticket("berlin"),
    ] {
        let refused = world.origin.enrol(&enrol(&ticket), at(1));
        assert!(matches!(refused, Err(EnrolError::Refused(NotEnrolled::Ticket))), "{ticket:?}");
    }
    let late = world.origin.enrol(&enrol(&good), at(8));
    assert!(matches!(late, Err(EnrolError::Refused(NotEnrolled::Expired))));
    let mut forged = enrol(&good);
    let last = forged.request.len() - 1;
    forged.request[last] ^= 1;
    assert!(matches!(
        world.origin.enrol(&forged, at(1)),
        Err(EnrolError::Refused(NotEnrolled::Request))
    ));
    world.origin.enrol(&enrol(&good), at(1)).expect("none of them has used it");
}

#[test]
fn joining_replica_accepts_only_the_origin_of_its_ticket() {
    let (mut world, other) = (World::new(), World::new());
    let joining = Joining::new(world.ticket("berlin")).expect("a key");
    let client = joining.connect(clock(0)).expect("good keys");
    let server = other.origin.accept(clock(0)).expect("good keys");
    let error = shake(client, server).expect_err("another origin");
    let Error::InvalidCertificate(CertificateError::Other(why)) = &error else {
        panic!("{error}");
    };
    assert_eq!(why.0.downcast_ref(), Some(&OtherOrigin));
}

#[test]
fn foreign_certificates_are_rejected_by_both_sides() {
    let (mut world, mut other) = (World::new(), World::new());
    let (replica, stranger) = (world.join("berlin"), other.join("berlin"));
    let error = world.connect(&stranger, 0).expect_err("of another origin");
    assert!(error.contains("certificate"), "{error}");
    // A stranger that does not verify the origin's certificate is refused as well.
    let pinned = Arc::new(pinned::Pinned::new(world.ticket("paris").authority));
    let (_, name) = stranger.connect(clock(0)).expect("good keys");
    let (chain, secret) = stranger.shown();
    let client = ClientConfig::builder_with_details(provider(), clock(0))
        .with_protocol_versions(&[&TLS13])
        .expect("TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(pinned)
        .with_client_auth_cert(chain, secret)
        .expect("a pair");
    let server = world.origin.accept(clock(0)).expect("good keys");
    let refused = shake((Arc::new(client), name), server).expect_err("of another origin");
    let unknown = Error::InvalidCertificate(CertificateError::UnknownIssuer);
    assert_eq!(refused, unknown);
    assert!(world.connect(&replica, 0).is_ok());
}

#[test]
fn replica_cannot_impersonate_the_origin() {
    let mut world = World::new();
    let (honest, evil) = (world.join("berlin"), world.join("paris"));
    let (chain, secret) = evil.shown();
    let server = ServerConfig::builder_with_details(provider(), clock(0))
        .with_protocol_versions(&[&TLS13])
        .expect("TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .expect("a pair");
    let client = honest.connect(clock(0)).expect("good keys");
    let refused = shake(client, Arc::new(server)).expect_err("the certificate of a replica");
    assert!(matches!(refused, Error::InvalidCertificate(_)), "{refused}");
}

#[test]
fn older_tls_versions_are_rejected() {
    let mut world = World::new();
    let replica = world.join("berlin");
    let (_, name) = replica.connect(clock(0)).expect("good keys");
    let client = ClientConfig::builder_with_details(provider(), clock(0))
        .with_protocol_versions(&[&TLS12])
        .expect("TLS 1.2")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let server = world.origin.accept(clock(0)).expect("good keys");
    assert!(matches!(shake((Arc::new(client), name), server), Err(Error::PeerIncompatible(_))));
}

#[test]
fn revoked_replica_is_rejected_until_it_joins_again() {
    let mut world = World::new();
    let (berlin, paris) = (world.join("berlin"), world.join("paris"));
    assert!(world.origin.revoke(berlin.replica()).expect("it can be written"));
    assert!(!world.origin.revoke(ReplicaId(9)).expect("it can be written"));
    let revoked = NotAdmitted::Revoked(ReplicaId(0)).to_string();
    assert_eq!(world.connect(&berlin, 1), Err(revoked));
    let renewal = berlin.renew().expect("a key");
    let refused = world.origin.renew(berlin.replica(), &renewal.request, at(1));
    assert!(matches!(refused, Err(EnrolError::Refused(NotEnrolled::Revoked))));
    assert_eq!(world.connect(&paris, 1), Ok(Peer::Replica(ReplicaId(1))));
    let joined: Vec<_> = world.origin.replicas().map(|(_, name, joined)| (name, joined)).collect();
    assert_eq!(joined, [("berlin", false), ("paris", true)]);
    let again = world.join("berlin");
    assert_eq!(world.connect(&again, 1), Ok(Peer::Replica(ReplicaId(0))));
    assert_eq!(world.connect(&berlin, 1), Err(NotAdmitted::Replaced(ReplicaId(0)).to_string()));
}

#[test]
fn old_certificate_is_valid_until_the_new_one_is_used() {
    let mut world = World::new();
    let mut replica = world.join("berlin");
    assert!(!replica.is_old(at(200)) && replica.is_old(at(250)));
    let before = ReplicaIdentity::open(replica.folder()).expect("it was written");
    let peer = Ok(Peer::Replica(ReplicaId(0)));
    for lost in [true, true, false] {
        let renewal = replica.renew().expect("a key");
        let enrolled = world.origin.renew(replica.replica(), &renewal.request, at(250));
        let enrolled = enrolled.expect("it was admitted");
        assert_eq!(world.connect(&before, 250), peer);
        if !lost {
            replica.renewed(renewal, enrolled, at(250)).expect("it can be written");
        }
    }
    assert_eq!(world.connect(&replica, 251), peer);
    assert_eq!(world.connect(&before, 251), Err(NotAdmitted::Unknown.to_string()));
    // The origin renews its own certificate. Otherwise it would be too old for this one.
    assert!(world.connect(&replica, 500).is_err());
    let folder = world.folder.path().join("origin");
    world.origin = OriginIdentity::open(&folder, at(500)).expect("it was written");
    assert_eq!(world.connect(&replica, 500), peer);
    assert!(world.connect(&replica, 700).is_err(), "the replica's is too old");
}

/// The origin gives a replica a new certificate, which it uses.
fn renew(world: &mut World, replica: &mut ReplicaIdentity, day: u64) {
    let renewal = replica.renew().expect("a key");
    let enrolled = world.origin.renew(replica.replica(), &renewal.request, at(day));
    replica.renewed(renewal, enrolled.expect("admitted"), at(day)).expect("it can be written");
    assert!(world.connect(replica, day).is_ok());
}

#[test]
fn authority_is_replaced_without_locking_out_replicas() {
    let mut world = World::new();
    let (mut berlin, paris) = (world.join("berlin"), world.join("paris"));
    let finished = world.origin.finish_rotation(at(1));
    assert!(matches!(finished, Err(RotationError::NotBegun)));
    world.origin.begin_rotation(at(1)).expect("it can be written");
    let begun = world.origin.begin_rotation(at(1));
    assert!(matches!(begun, Err(RotationError::UnderWay)));
    let tokyo = world.join("tokyo");
    for replica in [&berlin, &paris, &tokyo] {
        assert!(world.connect(replica, 2).is_ok());
    }
    // For the second time because the answer to the first was lost, for example.
    for _ in 0..2 {
        let renewal = berlin.renew().expect("a key");
        let enrolled = world.origin.renew(berlin.replica(), &renewal.request, at(2));
        berlin.renewed(renewal, enrolled.expect("admitted"), at(2)).expect("it can be written");
    }
    let behind = |world: &mut World| match world.origin.finish_rotation(at(3)) {
        Err(RotationError::Behind(names)) => names,
        other => panic!("{other:?}"),
    };
    // An issued certificate may not have arrived before it is used.
    assert_eq!(behind(&mut world), ["berlin", "paris"]);
    assert!(world.connect(&berlin, 3).is_ok());
    assert_eq!(behind(&mut world), ["paris"]);
    assert!(world.origin.is_behind(paris.replica()) && !world.origin.is_behind(tokyo.replica()));
    world.origin.revoke(paris.replica()).expect("it can be written");
    world.origin.finish_rotation(at(3)).expect("no replica is locked out");
    for replica in [&berlin, &tokyo] {
        assert!(world.connect(replica, 4).is_ok());
    }
    assert!(world.connect(&paris, 4).is_err());
    let late = world.join("oslo");
    assert!(world.connect(&late, 4).is_ok());
    // Replicas that trust the old one as well drop it.
    let is_behind = |world: &World, one: &ReplicaIdentity| world.origin.is_behind(one.replica());
    assert!(is_behind(&world, &berlin) && is_behind(&world, &tokyo) && !is_behind(&world, &late));
    let renewal = berlin.renew().expect("a key");
    let enrolled = world.origin.renew(berlin.replica(), &renewal.request, at(4)).expect("admitted");
    assert_eq!(enrolled.authorities.len(), 1);
    berlin.renewed(renewal, enrolled, at(4)).expect("it can be written");
    assert!(world.connect(&berlin, 4).is_ok());
    assert!(!is_behind(&world, &berlin));
}

/// Whether the old key is dropped, when the last state is the fifth.
fn drop_old_key(world: &mut World, reached: impl Fn(ReplicaId) -> Option<Sequence>) -> bool {
    world.origin.drop_replaced_token_key(|| FIVE, reached).expect("it can be written")
}

/// A client may present a token of one replica to all others at any time.
#[test]
fn replicas_accept_tokens_of_each_other_during_key_rotation() {
    let mut world = World::new();
    let (mut berlin, mut paris) = (world.join("berlin"), world.join("paris"));
    let believed = |rings: &[Keyring]| {
        let tokens: Vec<String> = rings.iter().map(|ring| ring.issue(FIVE)).collect();
        for (at, ring) in rings.iter().enumerate() {
            for (from, token) in tokens.iter().enumerate() {
                assert_eq!(ring.verify(token), Ok(FIVE), "that of {from} at {at}");
            }
        }
        tokens
    };
    let rings = |world: &World, replicas: &[&ReplicaIdentity]| -> Vec<Keyring> {
        let theirs = replicas.iter().map(|one| one.keyring());
        theirs.chain([world.origin.keyring()]).collect()
    };
    let old = world.origin.keyring().issue(FIVE);
    let tokens = believed(&rings(&world, &[&berlin, &paris]));
    assert!(tokens.iter().all(|token| *token == old));
    world.origin.begin_rotation(at(1)).expect("it can be written");
    believed(&rings(&world, &[&berlin, &paris]));
    renew(&mut world, &mut berlin, 1);
    let mut tokyo = world.join("tokyo");
    let tokens = believed(&rings(&world, &[&berlin, &paris, &tokyo]));
    assert!(tokens.iter().all(|token| *token == old), "paris knows no other key yet");
    renew(&mut world, &mut paris, 1);
    world.origin.finish_rotation(at(2)).expect("all have renewed");
    let mut oslo = world.join("oslo");
    // One replica after the other begins with the new key, as requested when it connects.
    for number in 0..3 {
        let tokens = believed(&rings(&world, &[&berlin, &paris, &tokyo, &oslo]));
        assert_eq!(tokens.iter().filter(|token| **token == old).count(), 3 - number);
        assert!(!drop_old_key(&mut world, |_| Some(FIVE)));
        let next = [&mut berlin, &mut paris, &mut tokyo].into_iter().nth(number);
        let next = next.expect("one of three");
        assert!(world.origin.is_behind(next.replica()));
        renew(&mut world, next, 2);
    }
    assert!(
        drop_old_key(&mut world, |_| Some(FIVE)) && !drop_old_key(&mut world, |_| Some(FIVE)),
        "told once"
    );
    // No replica makes tokens with the old key any more, and none answers from an earlier state than such
    // tokens may require. So it is dropped.
    for one in [&mut berlin, &mut paris, &mut tokyo, &mut oslo] {
        assert_eq!(one.keyring().verify(&old), Ok(FIVE));
        assert!(world.origin.is_behind(one.replica()));
        renew(&mut world, one, 3);
        assert_eq!(one.keyring().verify(&old), Err(TokenError::Forged));
        assert!(!world.origin.is_behind(one.replica()));
    }
    believed(&rings(&world, &[&berlin, &paris, &tokyo, &oslo]));
}

#[test]
fn absent_replica_keeps_the_old_token_key_until_revoked() {
    let mut world = World::new();
    let (mut berlin, mut paris) = (world.join("berlin"), world.join("paris"));
    let old = world.origin.keyring().issue(FIVE);
    world.origin.begin_rotation(at(1)).expect("it can be written");
    renew(&mut world, &mut berlin, 1);
    renew(&mut world, &mut paris, 1);
    world.origin.finish_rotation(at(2)).expect("all have renewed");
    renew(&mut world, &mut berlin, 2);
    assert!(!drop_old_key(&mut world, |_| Some(FIVE)));
    assert_eq!(world.origin.keyring().verify(&old), Ok(FIVE));
    // A third one does not replace it, either.
    let again = world.origin.begin_rotation(at(2));
    assert!(matches!(again, Err(RotationError::Unsettled)), "{again:?}");
    world.origin.revoke(paris.replica()).expect("it can be written");
    assert!(drop_old_key(&mut world, |_| Some(FIVE)));
    assert_eq!(world.origin.keyring().verify(&old), Err(TokenError::Forged));
    world.origin.begin_rotation(at(3)).expect("it can be written");
}

/// Otherwise a client that has seen that state would be shown an earlier one, because its token is not
/// accepted.
#[test]
fn old_token_key_is_kept_until_all_show_its_last_state() {
    let mut world = World::new();
    let (mut berlin, mut paris) = (world.join("berlin"), world.join("paris"));
    world.origin.begin_rotation(at(1)).expect("it can be written");
    for one in [&mut berlin, &mut paris] {
        renew(&mut world, one, 1);
    }
    world.origin.finish_rotation(at(2)).expect("all have renewed");
    for one in [&mut berlin, &mut paris] {
        assert!(!drop_old_key(&mut world, |_| Some(FIVE)));
        renew(&mut world, one, 2);
    }
    let (here, there) = (berlin.replica(), paris.replica());
    let late = |at: Option<Sequence>| move |one| if one == there { at } else { Some(FIVE) };
    for at in [None, Some(Sequence(4))] {
        assert!(!drop_old_key(&mut world, late(at)), "{at:?}");
    }
    assert_eq!(world.origin.to_reach(), Some(FIVE));
    // So no replica has to renew.
    assert!(!world.origin.is_behind(here) && !world.origin.is_behind(there));
    // Later states have tokens of the new key only.
    let settled = world.origin.drop_replaced_token_key(|| Sequence(9), |_| Some(FIVE));
    assert!(settled.expect("it can be written"));
    assert_eq!(world.origin.to_reach(), None);
    assert!(world.origin.is_behind(here) && world.origin.is_behind(there));
}

/// It no longer knows which state was the last one then.
#[test]
fn old_token_key_survives_an_origin_restart() {
    let mut world = World::new();
    let mut berlin = world.join("berlin");
    world.origin.begin_rotation(at(1)).expect("it can be written");
    renew(&mut world, &mut berlin, 1);
    world.origin.finish_rotation(at(2)).expect("all have renewed");
    renew(&mut world, &mut berlin, 2);
    assert!(!drop_old_key(&mut world, |_| Some(Sequence(4))));
    world.origin = OriginIdentity::open(&world.folder.path().join("origin"), at(3)).expect("kept");
    let mut settled = |reached: Option<Sequence>| {
        world
            .origin
            .drop_replaced_token_key(|| Sequence(9), |_| reached)
            .expect("it can be written")
    };
    assert_eq!([None, Some(FIVE), Some(Sequence(9))].map(&mut settled), [false, false, true]);
}

#[test]
fn replica_rejoins_in_its_folder_only_at_the_same_origin() {
    let (mut world, mut other) = (World::new(), World::new());
    let before = world.join("berlin");
    let elsewhere = Joining::again(other.ticket("berlin"), &before);
    assert!(matches!(elsewhere, Err(IdentityError::Another(_))), "{elsewhere:?}");
    let joining = Joining::again(world.ticket("paris"), &before).expect("the same origin");
    let enrolled = world.origin.enrol(&joining.enrol(), at(1)).expect("a good ticket");
    let after = joining.finish(before.folder(), enrolled, at(1)).expect("it may be replaced");
    assert_eq!(world.connect(&after, 1), Ok(Peer::Replica(ReplicaId(1))));
    let kept = ReplicaIdentity::open(before.folder()).expect("it was written");
    assert_eq!(kept.replica(), ReplicaId(1));
    // Nothing is replaced without a request.
    let joining = Joining::new(world.ticket("oslo")).expect("a key");
    let enrolled = world.origin.enrol(&joining.enrol(), at(1)).expect("a good ticket");
    let refused = joining.finish(before.folder(), enrolled, at(1));
    assert!(matches!(refused, Err(IdentityError::Exists(_))), "{refused:?}");
}

#[test]
fn changed_origin_address_is_persisted() {
    let mut world = World::new();
    let mut replica = world.join("berlin");
    replica.set_address("elsewhere.example:7").expect("it can be written");
    renew(&mut world, &mut replica, 1);
    let again = ReplicaIdentity::open(replica.folder()).expect("it was written");
    assert_eq!(
        (replica.address(), again.address()),
        ("elsewhere.example:7", "elsewhere.example:7")
    );
    assert_eq!(world.connect(&again, 1), Ok(Peer::Replica(ReplicaId(0))));
}

#[test]
fn corrupt_ticket_is_rejected() {
    let ticket = Ticket {
        address: "[2001:db8::7]:4711".to_owned(),
        authority: Digest([3; 32]),
        replica: ReplicaId(70_000),
        is_for_receivers: false,
        secret: [9; 32],
    };
    let text = ticket.to_string();
    assert_eq!(format!(" {text}\n").parse(), Ok(ticket.clone()));
    for at in 5..text.len() {
        let mut digits = text.clone().into_bytes();
        digits[at] = if digits[at] == b'0' { b'1' } else { b'0' };
        let changed = String::from_utf8(digits).expect("digits are text");
        assert_eq!(changed.parse::<Ticket>(), Err(TicketError::Checksum), "digit {at}");
    }
    for wrong in ["", "lull1", "lull1ab", "lull2", &text[1..], &text[..text.len() - 1], "lull1äö"]
    {
        let refused = wrong.parse::<Ticket>();
        assert!(matches!(refused, Err(TicketError::Malformed | TicketError::Checksum)), "{wrong}");
    }
    assert!(!format!("{ticket:?}").contains('9'), "a secret is not printed");
}

#[test]
fn keys_are_readable_by_their_owner_only() {
    let mut world = World::new();
    let replica = world.join("berlin");
    for folder in [&*world.folder.path().join("origin"), replica.folder()] {
        let mode = fs::metadata(files::file(folder)).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let origin = world.folder.path().join("origin");
    assert!(matches!(OriginIdentity::create(&origin, at(1)), Err(IdentityError::Exists(_))));
    fs::write(files::file(&origin), "{}").expect("a file");
    assert!(matches!(OriginIdentity::open(&origin, at(1)), Err(IdentityError::Damaged(_))));
    let nothing = world.folder.path().join("nothing");
    assert!(matches!(ReplicaIdentity::open(&nothing), Err(IdentityError::Nothing(_))));
}

/// A clock that was wrong for a moment does not exclude replicas for longer.
#[test]
fn certificates_from_a_fast_clock_are_reissued() {
    let folder = tempfile::tempdir().unwrap();
    let mut origin = OriginIdentity::create(folder.path(), at(0)).unwrap();
    let mut is_renewed = |now: u64| {
        let file = || fs::read(folder.path().join("identity.json")).unwrap();
        let before = file();
        origin.renew_if_old(at(now)).unwrap();
        file() != before
    };
    // The third time the clock is right again.
    let renewed = [200, 300, 299, 1, 2].map(&mut is_renewed);
    assert_eq!(renewed, [false, true, false, true, false]);
}
