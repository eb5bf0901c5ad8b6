//! Exchange of pieces with neighbours, which the parent names (`docs/adr/0031-neighbours-exchange-pieces.md`).
//!
//! ```text
//!                    own pieces                      pieces of others
//!   parent ──────────────────────▶ Running ◀────────────────────────── asking ◀── neighbours
//!                                     │
//!                                     ├──▶ the body, in order (intake)
//!                                     └──▶ giving ──▶ neighbours
//! ```

mod asking;
mod giving;
mod running;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{self, IpAddr, SocketAddr};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lull_replication::message::Neighbour;
use lull_replication::types::{Digest, ReplicaId};
use lull_transport::Options;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::{Shared, lock};
use crate::daemon::DaemonError;

pub(super) use giving::accept;
pub(super) use running::{PiecesToCome, Running};

/// How long a body waits for the names of the neighbours, at most.
const PATIENCE: Duration = Duration::from_secs(2);

/// How a replica exchanges pieces with neighbours.
#[derive(Clone, Debug)]
pub struct ShareOptions {
    /// The listening address for neighbours.
    pub listen: String,
    /// How pieces are sent.
    pub background: Options,
}

impl ShareOptions {
    /// Listens from now on.
    pub(super) fn open(self) -> Result<(Sharing, TcpListener), DaemonError> {
        let ShareOptions { listen, background } = self;
        let bind = || -> io::Result<(TcpListener, SocketAddr)> {
            let listener = net::TcpListener::bind(&listen)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok((TcpListener::from_std(listener)?, address))
        };
        let (listener, address) =
            bind().map_err(|source| DaemonError::Listen { address: listen.clone(), source })?;
        Ok((Sharing::new(address, background), listener))
    }
}

/// The neighbours that the parent has named.
#[derive(Default)]
struct Named {
    all: BTreeMap<ReplicaId, Neighbour>,
    /// The parent has named them in this session.
    is_complete: bool,
    /// Certificates of neighbours that have sent wrong pieces, until this daemon ends.
    banned: BTreeSet<Digest>,
}

/// The part of a replica that exchanges pieces.
pub(super) struct Sharing {
    address: SocketAddr,
    background: Options,
    named: Mutex<Named>,
    /// The bodies that arrive from parent and neighbours.
    running: Mutex<BTreeMap<Digest, Arc<Running>>>,
    /// Changes when a piece has arrived, or the neighbours are others.
    news: watch::Sender<u64>,
    /// Bytes from neighbours, and to them.
    pub(super) received: AtomicU64,
    pub(super) sent: AtomicU64,
}

impl Sharing {
    fn new(address: SocketAddr, background: Options) -> Self {
        let (named, running, received, sent) = Default::default();
        Sharing { address, background, named, running, news: watch::Sender::new(0), received, sent }
    }

    /// The address for neighbours, of a replica whose connection to the parent has this one: the listener may accept
    /// connections at all addresses of the machine.
    pub(super) fn address(&self, local: Option<IpAddr>) -> Option<SocketAddr> {
        let ip = self.address.ip();
        let ip = if ip.is_unspecified() { local?.to_canonical() } else { ip };
        Some(SocketAddr::new(ip, self.address.port()))
    }

    /// The parent has named all neighbours. Without a connection there are none.
    pub(super) fn set_neighbours(&self, all: Option<Vec<Neighbour>>) {
        {
            let mut named = lock(&self.named);
            named.is_complete = all.is_some();
            let all = all.into_iter().flatten();
            named.all = all.map(|one| (one.replica, one)).collect();
        }
        let running: Vec<_> = lock(&self.running).values().cloned().collect();
        for one in running {
            one.retain(|neighbour| self.is_neighbour(neighbour));
        }
        self.note_news();
    }

    /// Waits until the parent has named the neighbours: a body may begin just before.
    async fn wait_for_names(&self) {
        let is_complete = |_: &u64| lock(&self.named).is_complete;
        let _ = timeout(PATIENCE, self.news.subscribe().wait_for(is_complete)).await;
    }

    fn note_news(&self) {
        self.news.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// The neighbours that have sent no wrong piece.
    pub(super) fn neighbours(&self) -> Vec<Neighbour> {
        let named = lock(&self.named);
        let is_fine = |one: &&Neighbour| !named.banned.contains(&one.certificate);
        named.all.values().filter(is_fine).copied().collect()
    }

    /// Whether a replica is one of them, with the same certificate and address.
    fn is_neighbour(&self, neighbour: &Neighbour) -> bool {
        self.neighbours().contains(neighbour)
    }

    /// The neighbour that has a certificate.
    fn find(&self, certificate: &Digest) -> Option<Neighbour> {
        self.neighbours().into_iter().find(|one| one.certificate == *certificate)
    }

    /// A neighbour has sent a wrong piece.
    fn ban(&self, neighbour: &Neighbour) {
        lock(&self.named).banned.insert(neighbour.certificate);
        self.note_news();
    }
}

/// Begins to exchange a body, if there are neighbours and much of it has to come.
pub(super) async fn begin(shared: &Arc<Shared>, body: PiecesToCome) -> Option<Arc<Running>> {
    let sharing = shared.sharing.as_ref()?;
    if !shared.with(|core, _| core.machine.may_exchange()) {
        return None;
    }
    sharing.wait_for_names().await;
    let neighbours = sharing.neighbours();
    if neighbours.is_empty() {
        return None;
    }
    let digest = body.digest;
    let running = Running::new(shared, body, &neighbours).await?;
    lock(&sharing.running).insert(digest, Arc::clone(&running));
    for neighbour in neighbours {
        let (sender, numbers) = mpsc::unbounded_channel();
        running.add(neighbour, sender);
        let (asking, shared) = (Arc::clone(&running), Arc::clone(shared));
        running.keep_task(tokio::spawn(async move {
            let ended = asking::ask(&shared, &asking, &neighbour, numbers).await;
            asking.handle_ended(&shared, neighbour, ended.err().map(|why| why.to_string()));
        }));
    }
    sharing.note_news();
    Some(running)
}
