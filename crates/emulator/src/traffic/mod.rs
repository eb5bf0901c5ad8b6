//! Traffic between emulated hosts: endless transfers, requests for objects, and programs.
//!
//! One thread drives all sockets of a cell, without blocking, however many there are. Each socket
//! is made inside its host, and has its congestion control before it connects.

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
pub(crate) mod random;
pub(crate) mod reported;
mod requests;
mod scratch;
mod socket;
mod sys;

use crate::emulate::Host;
use crate::plan::{Group, Kind};
pub(crate) use command::Programs;
use engine::{Engine, Order};
pub(crate) use scratch::Scratch;

/// Why traffic could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrafficError {
    /// A system call failed.
    #[error("{what} failed")]
    System {
        /// What was being done.
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
        /// What it asked for.
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
        /// Its exit status, and the last thing it said.
        why: String,
    },
    /// A host could not be entered.
    #[error(transparent)]
    Host(#[from] crate::emulate::Error),
    /// The thread that makes the traffic is gone.
    #[error("the traffic's thread has ended early")]
    Stopped,
}

impl TrafficError {
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| TrafficError::System { what, source }
    }
}

/// A group with its hosts and the name that the kernel knows its congestion control by.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) group: Group,
    pub(crate) from: Host,
    pub(crate) to: Host,
    pub(crate) control: CString,
    /// The controller's constants, if it runs in user space and not in the kernel.
    pub(crate) user_space: Option<NiceParameters>,
    /// What the kernel calls the controls of a group that has more than one.
    pub(crate) controls: BTreeMap<String, CString>,
}

impl Placed {
    /// How its sockets are made background ones in user space, if that is what they are.
    fn user_space(&self) -> Option<Options> {
        let parameters = self.user_space?;
        let options = Options::new().carrier(Carrier::UserSpace).dscp(Dscp::None);
        Some(options.parameters(parameters))
    }
}

/// Both ends of a flow of data, the sender's first.
pub(crate) type Ends = (SocketAddr, SocketAddr);

/// A request that was answered in full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    /// When it was made: before the connection where that is fresh.
    pub(crate) asked: Instant,
    /// From then until the last byte had come.
    pub(crate) latency: Duration,
}

/// A probe's transfer that has come in full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    /// The action, by its number.
    pub(crate) action: usize,
    /// When its connection was asked for.
    pub(crate) asked: Instant,
    /// From then until the last byte had come.
    pub(crate) time: Duration,
    /// Payload that those beside it received meanwhile.
    pub(crate) received_beside: u64,
}

/// What a group has done since the beginning.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Payload that its receivers have read.
    pub(crate) received: u64,
    /// The same for each bulk connection, by its sender's end.
    pub(crate) by_flow: BTreeMap<SocketAddr, u64>,
    /// Sum of the smoothed round-trip times sampled from its senders.
    pub(crate) srtt_sum: Duration,
    /// Sum of their congestion windows, in packets.
    pub(crate) window_sum: u64,
    /// How many samples these are.
    pub(crate) samples: u64,
    /// Segments that connections which have ended sent again.
    pub(crate) retransmitted: u64,
    /// Requests answered.
    pub(crate) answered: Vec<Answered>,
    /// When the requests were made that are not answered yet.
    pub(crate) open: Vec<Instant>,
    /// Requests that failed: connections refused or reset.
    pub(crate) failed: u64,
    /// Transfers of probes.
    pub(crate) transfers: Vec<Transfer>,
    /// Of programs: when the last of them had ended, and how long after its group's beginning.
    pub(crate) completed: Option<(Instant, Duration)>,
    /// Of programs: what the last one reported.
    pub(crate) report: Option<serde_json::Value>,
    /// All flows of data it ever had.
    pub(crate) flows: BTreeSet<Ends>,
}

/// The traffic of a cell.
#[derive(Debug)]
pub(crate) struct Traffic {
    orders: Sender<Order>,
    wake: Arc<EventFd>,
    thread: Option<JoinHandle<Result<(), TrafficError>>>,
}

impl Traffic {
    /// Makes listeners for all groups of sockets; nothing is sent before [`Traffic::begin`].
    /// Groups of programs are not looked at: see [`Programs`].
    pub(crate) fn start(groups: Vec<Placed>, seed: u64) -> Result<Self, TrafficError> {
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

    /// Lets a group begin, by its number in the list given to [`Traffic::start`].
    pub(crate) fn begin(&self, group: usize) -> Result<(), TrafficError> {
        self.order(Order::Begin(group))
    }

    /// Ends a group: its connections are reset, so nothing that waits in them is sent.
    pub(crate) fn end(&self, group: usize) -> Result<(), TrafficError> {
        self.order(Order::End(group))
    }

    /// Whether a group has done all it has to do; only probes ever have.
    pub(crate) fn is_done(&self, group: usize) -> Result<bool, TrafficError> {
        let (answer, answered) = channel();
        self.order(Order::IsDone(group, answer))?;
        answered.recv().map_err(|_| TrafficError::Stopped)
    }

    /// What all groups have done so far, and when that was.
    pub(crate) fn tally(&self) -> Result<(Instant, Vec<Tally>), TrafficError> {
        let (answer, answered) = channel();
        self.order(Order::Tally(answer))?;
        answered.recv().map_err(|_| TrafficError::Stopped)
    }

    /// Ends all groups, and tells what went wrong if something did.
    pub(crate) fn finish(&mut self) -> Result<(), TrafficError> {
        // A thread that has ended by itself says why.
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

/// Whether a group consists of sockets of ours.
pub(crate) fn is_sockets(group: &Group) -> bool {
    !matches!(group.kind, Kind::Command { .. })
}
