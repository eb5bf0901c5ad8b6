//! The kernel part of Lull: registers the congestion controls `lull`, TCP Nice and TCP-Background with the kernel,
//! runs programs in the background, and reads their state.
//!
//! - [`load`], [`unload`], [`status`](fn@status): a congestion control of `bpf/`, pinned in the
//!   BPF file system so that it outlives the command.
//! - [`register_control`]: a variant of it with any constants, while the process runs.
//! - [`run`]: a program whose TCP connections, including those of its children, are background ones.
//! - [`serve`](fn@serve): lets users without the rights of root do that.
//! - [`prepare_slice`]: puts a cgroup, with all processes that come into it, into the background.
//! - [`read_background`](fn@read_background): the background at one moment, for monitors.
//! - [`adopt`]: moves a running process into the background; [`foreground`](fn@foreground) moves it back.
//!
//! ```no_run
//! use lull_kernel::{Parameters, PathTable};
//!
//! // `lull kernel load`: the congestion control `lull`, for programs that select it by name.
//! lull_kernel::load("lull", Parameters::lull(PathTable::default(), false))?;
//! for job in lull_kernel::jobs()? {
//!     println!("{}", job.id);
//! }
//! # Ok::<(), lull_kernel::Error>(())
//! ```

mod admission;
mod adopt;
mod attach;
mod background;
mod cgroup;
mod constants;
mod control;
mod delegation;
mod doctor;
mod elsewhere;
mod error;
mod existing_sockets;
mod foreground;
mod group_signals;
mod hooks;
mod job_access;
mod job_control;
mod jobs;
mod load;
mod machine;
mod mounts;
mod names;
mod owners;
mod parameters;
mod path_foreground;
mod paths;
mod process;
mod program_watch;
mod read_background;
mod reaper;
mod receive;
mod registered_control;
mod release;
mod run;
mod schedule;
mod serve;
mod service;
mod signals;
mod skeletons;
mod slice;
mod slice_mark;
mod snapshot;
mod sockets;
mod state;
mod status;
mod sys;
mod time_window;
mod udp;
mod user;

pub use admission::{Admission, admit};
pub use adopt::{Adopted, adopt};
pub use background::Choice;
pub use constants::{Constants, PathTable};
pub use doctor::{Finding, Level, examine, may_exec};
pub use error::{Error, Result};
pub use foreground::foreground;
pub use hooks::Dscp;
pub use job_access::{pause, resume};
pub use job_control::job_to_foreground;
pub use jobs::{Job, jobs};
pub use load::{Loaded, Unloaded, load, unload};
pub use machine::{check_congestion, check_kernel, check_name, check_privilege};
pub use owners::Owner;
pub use parameters::{Algorithm, MinWindow, Parameters};
pub use paths::{Foreground, Phase, Prefix, SharedPath};
pub use read_background::read_background;
pub use receive::{BadDirection, Direction};
pub use registered_control::{RegisteredControl, register_control};
pub use run::{Ending, Outcome, Summary, Traffic, run};
pub use schedule::wait_for_allowed_hours;
pub use serve::{SOCKET, check_access, serve};
pub use signals::die_by;
pub use slice::{Prepared, prepare_slice};
pub use snapshot::{ConnectionSample, JobSample, PathSample, Scope, Snapshot};
pub use sockets::{Socket, Yielding};
pub use status::{Status, status};
pub use time_window::{BadTimeWindow, TimeWindow};
pub use udp::{Udp, UdpSample, UdpTraffic};
pub use user::{User, is_called_by_sudo};
