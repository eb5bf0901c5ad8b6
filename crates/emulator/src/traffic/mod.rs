//! Traffic between emulated hosts: endless transfers, requests for objects, and programs.
//!
//! One thread drives all sockets of a cell, without blocking, for any number of them. Each socket is made
//! inside its host, and has its congestion control before it connects.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lull_cc::NiceParameters;
use lull_transport::{Carrier, Dscp, Options};
use nix::sys::eventfd::{EfdFlags, EventFd};

mod command;
mod engine;
mod reported;
mod requests;
mod scratch;
mod socket;
mod sys;
mod work;

use crate::Host;
pub use command::Programs;
use engine::{Engine, Order};
pub use reported::without_folders;
pub use scratch::Scratch;
pub use work::{Action, Probes, Work};

/// Why traffic failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrafficError {
    /// A system call failed.
    #[error("{what} failed")]
    System {
        /// The failed action.
        what: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The kernel does not have the congestion control.
    #[error(
        "the group '{group}' cannot use the congestion control '{control}': the kernel has none \
         of that name for it (see net.ipv4.tcp_available_congestion_control)"
    )]
    Control {
        /// The group.
        group: String,
        /// The requested congestion control.
        control: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A socket could not be put in the background from user space.
    #[error(transparent)]
    Transport(#[from] lull_transport::Error),
    /// A program could not be started.
    #[error("the program of the group '{group}', {program}, cannot be run")]
    Program {
        /// The group.
        group: String,
        /// The program.
        program: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A program failed.
    #[error("the program of the group '{group}', {program}, failed: {why}")]
    Failed {
        /// The group.
        group: String,
        /// The program.
        program: String,
        /// Its exit status, and its last message.
        why: String,
    },
    /// A host could not be entered.
    #[error(transparent)]
    Host(#[from] crate::Error),
    /// The thread that makes the traffic has ended.
    #[error("the traffic's thread has ended early")]
    Stopped,
}

impl TrafficError {
    /// Wraps the error of a system call. `what` names the action that failed.
    pub fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| TrafficError::System { what, source }
    }
}

/// A group of traffic with its hosts and the kernel's name of its congestion control.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The name of the group, for messages.
    pub name: String,
    /// Number of connections, clients or programs.
    pub count: u32,
    /// Differentiated-services codepoint of the data.
    pub dscp: u8,
    /// All of them start within this time, at uniformly random times.
    pub spread: Duration,
    /// The work of the group.
    pub work: Work,
    /// The host that sends the data.
    pub from: Host,
    /// The host that receives the data.
    pub to: Host,
    /// The kernel's name of the congestion control; empty for the host's default.
    pub control: CString,
    /// The controller's constants, if it runs in user space and not in the kernel.
    pub user_space: Option<NiceParameters>,
    /// The kernel's names of the congestion controls of a group that has more than one.
    pub controls: BTreeMap<String, CString>,
}

impl Placed {
    /// The options of its sockets, if they are background sockets in user space.
    fn user_space(&self) -> Option<Options> {
        let parameters = self.user_space?;
        let options = Options::new().carrier(Carrier::UserSpace).dscp(Dscp::None);
        Some(options.parameters(parameters))
    }
}

/// Both ends of a flow of data, the sender's first.
pub type Ends = (SocketAddr, SocketAddr);

/// A completely answered request.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// When it was made: before the connection, if that is new.
    pub asked: Instant,
    /// From then until the last byte had arrived.
    pub latency: Duration,
}

/// A completed transfer of a probe.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// The action, by its number.
    pub action: usize,
    /// When its connection was requested.
    pub asked: Instant,
    /// From then until the last byte had arrived.
    pub time: Duration,
    /// Payload that the transfers beside it received meanwhile.
    pub received_beside: u64,
}

/// The counts of a group since the beginning.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Payload that its receivers have read.
    pub received: u64,
    /// The same for each bulk connection, by its sender's end.
    pub by_flow: BTreeMap<SocketAddr, u64>,
    /// Sum of the smoothed round-trip times sampled from its senders.
    pub srtt_sum: Duration,
    /// Sum of their congestion windows, in packets.
    pub window_sum: u64,
    /// The number of these samples.
    pub samples: u64,
    /// Segments that closed connections retransmitted.
    pub retransmitted: u64,
    /// Requests answered.
    pub answered: Vec<Answered>,
    /// The times of requests that are not answered yet.
    pub open: Vec<Instant>,
    /// Requests that failed: connections refused or reset.
    pub failed: u64,
    /// Transfers of probes.
    pub transfers: Vec<Transfer>,
    /// For programs: when the last of them had ended, and how long after its group's start.
    pub completed: Option<(Instant, Duration)>,
    /// For programs: the report of the last one.
    pub report: Option<serde_json::Value>,
    /// All flows of data it ever had.
    pub flows: BTreeSet<Ends>,
}

/// The traffic of a cell.
#[derive(Debug)]
pub struct Traffic {
    orders: Sender<Order>,
    wake: Arc<EventFd>,
    thread: Option<JoinHandle<Result<(), TrafficError>>>,
}

impl Traffic {
    /// Makes listeners for all groups of sockets; nothing is sent before [`Traffic::begin`]. Groups of
    /// programs are ignored: see [`Programs`].
    pub fn start(groups: Vec<Placed>, seed: u64) -> Result<Self, TrafficError> {
        let error = || TrafficError::system("making an event descriptor");
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|errno| error()(errno.into()))?;
        let wake = Arc::new(wake);
        let (orders, received) = channel();
        let engine = Engine::new(groups, seed, Arc::clone(&wake))?;
        let thread = thread::Builder::new()
            .name("traffic".to_owned())
            .spawn(move || engine.run(&received))
            .map_err(TrafficError::system("starting a thread"))?;
        Ok(Traffic { orders, wake, thread: Some(thread) })
    }

    fn order(&self, order: Order) -> Result<(), TrafficError> {
        self.orders.send(order).map_err(|_| TrafficError::Stopped)?;
        self.wake
            .write(1)
            .map_err(|errno| TrafficError::system("waking the traffic")(errno.into()))?;
        Ok(())
    }

    /// Starts a group, by its number in the list given to [`Traffic::start`].
    pub fn begin(&self, group: usize) -> Result<(), TrafficError> {
        self.order(Order::Begin(group))
    }

    /// Ends a group: its connections are reset, so unsent data in them is discarded.
    pub fn end(&self, group: usize) -> Result<(), TrafficError> {
        self.order(Order::End(group))
    }

    /// Whether a group has done all its work; only probes can have.
    pub fn is_done(&self, group: usize) -> Result<bool, TrafficError> {
        let (answer, answered) = channel();
        self.order(Order::IsDone(group, answer))?;
        answered.recv().map_err(|_| TrafficError::Stopped)
    }

    /// The counts of all groups so far, and their time.
    pub fn tally(&self) -> Result<(Instant, Vec<Tally>), TrafficError> {
        let (answer, answered) = channel();
        self.order(Order::Tally(answer))?;
        answered.recv().map_err(|_| TrafficError::Stopped)
    }

    /// Ends all groups, and reports an error if there was one.
    pub fn finish(&mut self) -> Result<(), TrafficError> {
        // If the thread has already ended, its error says why.
        let _ = self.order(Order::Stop);
        match self.thread.take() {
            Some(thread) => {
                thread.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))
            }
            None => Ok(()),
        }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = self.order(Order::Stop);
            // A panic of the thread has been printed; a second one here would abort.
            let _ = thread.join();
        }
    }
}
