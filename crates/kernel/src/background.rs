//! A cgroup with its hooks: everything that has to exist before a process may enter, and has to be removed
//! when the last one has left.

use std::mem::MaybeUninit;

use libbpf_rs::OpenObject;

use crate::cgroup::{Cgroup, Hierarchy};
use crate::error::{Error, Result};
use crate::existing_sockets::SocketSettings;
use crate::hooks::{Dscp, HookSettings, Hooks};
use crate::load::{load_automatically, unload_unused};
use crate::mounts::Bpffs;
use crate::parameters::{Algorithm, Parameters};
use crate::receive::Direction;
use crate::release::Releases;
use crate::slice_mark::slices;
use crate::state::{PinFolder, State};
use crate::time_window::TimeWindow;
use crate::udp::Udp;
use crate::{elsewhere, jobs, machine};

/// The settings for the connections of a background cgroup.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The congestion control.
    pub congestion: String,
    /// The DSCP of packets.
    pub dscp: Dscp,
    /// Load it under that name with these parameters if the kernel does not have it. It is unloaded with the
    /// last cgroup that uses it.
    pub automatic: Option<Parameters>,
    /// The network serves lower-effort packets last; required for a congestion control that does not yield by
    /// itself.
    pub network_honours_le: bool,
    /// The name in `lull jobs`.
    pub name: Option<String>,
    /// How long connections lead under [`Algorithm::Lull`], relative to those of other backgrounds on the same
    /// path: 1 to 100; `None` for [`lull_cc::lull::Member::USUAL_WEIGHT`].
    pub weight: Option<u32>,
    /// Which TCP traffic yields.
    pub direction: Direction,
    /// The treatment of UDP packets that are sent.
    pub udp: Udp,
    /// The program is frozen outside this time of day.
    pub hours: Option<TimeWindow>,
    /// Mark IPv4 traffic of IPv6 sockets by system calls, as on kernels before 6.13; for tests.
    pub mapped_by_parent: bool,
    /// Received traffic does not yield, as on kernels without the hook for it; for tests.
    pub no_receive_hook: bool,
}

impl Choice {
    /// The settings that sockets of this process, or of a moved one, get by system calls.
    pub(crate) fn wanted<'a>(&'a self, releases: Option<&'a Releases>) -> SocketSettings<'a> {
        let class = self.dscp.traffic_class();
        SocketSettings {
            congestion: &self.congestion,
            class,
            releases,
            leaving: None,
            only_others: false,
            sends: self.direction.sends(),
            receives: false,
        }
    }

    /// Checks that need neither the machine nor privileges.
    pub(crate) fn check_words(&self) -> Result<()> {
        machine::check_congestion_name(&self.congestion)?;
        self.check(self.automatic.map(|parameters| parameters.algorithm()))
    }

    /// §4.2 and table 8 of the filler paper: without priorities TCP-Background is as obtrusive as any
    /// TCP, and its authors advise against it.
    fn check(&self, algorithm: Option<Algorithm>) -> Result<()> {
        if algorithm.is_none_or(Algorithm::yields) {
            return Ok(());
        }
        let name = || self.congestion.clone();
        if !self.network_honours_le {
            return Err(Error::NeedsLowerClass { name: name() });
        }
        if self.dscp != Dscp::Le {
            return Err(Error::NeedsMark { name: name() });
        }
        Ok(())
    }
}

/// A cgroup whose sockets are background ones.
pub(crate) struct Background<'obj> {
    pub(crate) cgroup: Cgroup,
    /// Why it is outside the cgroup of this process, if it is.
    pub(crate) why_outside: Option<String>,
    pub(crate) hooks: Hooks<'obj>,
    pub(crate) hierarchy: Hierarchy,
    /// Requested features that the kernel lacks, one line each.
    shortfalls: Vec<String>,
    bpffs: Option<Bpffs>,
}

impl<'obj> Background<'obj> {
    /// Removes the remains of earlier runs, and sets up a new cgroup.
    pub(crate) fn set_up(
        choice: &Choice,
        storage: &'obj mut MaybeUninit<OpenObject>,
    ) -> Result<Self> {
        Self::set_up_in(choice, storage, None)
    }

    /// The same inside the cgroup of a process, so that its limits hold.
    pub(crate) fn set_up_around(
        choice: &Choice,
        storage: &'obj mut MaybeUninit<OpenObject>,
        pid: i32,
    ) -> Result<Self> {
        Self::set_up_in(choice, storage, Some(pid))
    }

    fn set_up_in(
        choice: &Choice,
        storage: &'obj mut MaybeUninit<OpenObject>,
        around: Option<i32>,
    ) -> Result<Self> {
        choice.check_words()?;
        machine::check_privilege("lull exec")?;
        machine::check_btf()?;
        choice.name.as_deref().map_or(Ok(()), jobs::check_name)?;
        let hierarchy = Hierarchy::open()?;
        // The lock on the state is held until the cgroup exists, which then keeps an automatically loaded
        // congestion control loaded.
        let bpffs = match choice.automatic {
            Some(_) => Some(Bpffs::mount()?),
            // A user without access to it has loaded nothing there.
            None => Bpffs::find().ok().flatten(),
        };
        let mut refused = None;
        let state = match (choice.automatic, &bpffs) {
            (Some(parameters), Some(bpffs)) => {
                let state = State::open(bpffs)?;
                refused = load_automatically(&state, &choice.congestion, parameters)?;
                Some(state)
            }
            (_, bpffs) => {
                // The lock first: a congestion control of another run must not be unloaded once it was seen.
                let state = existing(bpffs.as_ref())?;
                machine::check_congestion(&choice.congestion)?;
                state
            }
        };
        let make = || match around {
            None => hierarchy.create(&choice.congestion),
            Some(pid) => {
                let home = hierarchy.home_of(pid).map_err(|_| Error::NoProcess { pid })?;
                let made = hierarchy.create_inside(&home, &choice.congestion);
                made.map(|cgroup| (cgroup, None)).map_err(|why| Error::NoRoom { pid, why })
            }
        };
        let shortfalls = Vec::from_iter(shortfall(choice, state.as_ref(), refused));
        let result = Self::attach(choice, storage, make, state.as_ref());
        let mut alive = hierarchy.reap();
        if result.is_ok() {
            alive.push(choice.congestion.clone());
        }
        tidy(&hierarchy, state, &alive);
        let (cgroup, why_outside, hooks) = result?;
        Ok(Background { cgroup, why_outside, hooks, hierarchy, shortfalls, bpffs })
    }

    /// Attaches the hooks to the cgroup that `make` returns.
    pub(crate) fn attach(
        choice: &Choice,
        storage: &'obj mut MaybeUninit<OpenObject>,
        make: impl FnOnce() -> Result<(Cgroup, Option<String>)>,
        state: Option<&State<'_>>,
    ) -> Result<(Cgroup, Option<String>, Hooks<'obj>)> {
        let found = state.and_then(|state| state.find(&choice.congestion));
        // A container has a BPF file system of its own, and the host's congestion controls.
        let elsewhere = found.is_none().then(|| elsewhere::find(state)).flatten();
        let other = elsewhere.as_ref().map_or(Ok(None), State::open_existing)?;
        let folder = found.or_else(|| other.as_ref()?.find(&choice.congestion));
        drop(other);
        let algorithm = folder.as_ref().and_then(PinFolder::algorithm);
        // One that was loaded under another name.
        choice.check(algorithm)?;
        let sockets = folder
            .clone()
            .filter(|folder| {
                folder.knows_sockets() && algorithm.is_some_and(Algorithm::counts_yielding)
            })
            .map(|folder| folder.sockets());
        let shares = algorithm.is_some_and(Algorithm::shares_paths);
        let weights = folder.filter(|folder| shares && folder.knows_sockets());
        let weights = weights.map(|folder| folder.weights()).zip(choice.weight);
        let settings = HookSettings {
            congestion: &choice.congestion,
            dscp: choice.dscp,
            sockets: sockets.as_deref(),
            mapped_by_parent: choice.mapped_by_parent,
            no_receive_hook: choice.no_receive_hook,
            admits: shares,
            weights: weights.as_ref().map(|(path, weight)| (path.as_path(), *weight)),
            direction: choice.direction,
            udp: choice.udp,
            weight: choice.weight,
        };
        let mut hooks = Hooks::load(storage, &settings)?;
        hooks.elsewhere = elsewhere;
        let (cgroup, why_outside) = make()?;
        let named = choice.name.as_deref();
        let named = named.map_or(Ok(()), |name| jobs::set_name(cgroup.directory(), name));
        match named.and_then(|()| hooks.attach(cgroup.as_fd())) {
            Ok(()) => Ok((cgroup, why_outside, hooks)),
            Err(error) => {
                cgroup.remove();
                Err(error)
            }
        }
    }

    /// Requested features that the kernel lacks, one line each.
    pub(crate) fn shortfalls(&self) -> Vec<String> {
        self.shortfalls.iter().cloned().chain(self.hooks.shortfalls()).collect()
    }

    /// Removes the cgroup unless processes are left in it, and the resources that it alone needed. Returns
    /// whether the cgroup is gone.
    pub(crate) fn tear_down(self) -> bool {
        // The lock first: a concurrent set-up must not find the congestion control loaded and then lose it.
        let state = existing(self.bpffs.as_ref()).ok().flatten();
        let is_gone = self.cgroup.remove();
        tidy(&self.hierarchy, state, &self.hierarchy.reap());
        is_gone
    }
}

/// That connections run Nice although [`Algorithm::Lull`] was requested. `refused`: why the kernel rejected
/// that just now.
fn shortfall(
    choice: &Choice,
    state: Option<&State<'_>>,
    refused: Option<String>,
) -> Option<String> {
    let wanted = choice.automatic.filter(|parameters| parameters.algorithm().shares_paths());
    let folder = state.and_then(|state| state.find(&choice.congestion));
    let runs_nice =
        folder.and_then(|folder| folder.algorithm()).is_some_and(|it| !it.shares_paths());
    (wanted.is_some() && runs_nice).then(|| {
        let why = refused.map_or_else(String::new, |why| format!(" ({why})"));
        format!("this kernel cannot run '{}'{why}: connections use TCP Nice", choice.congestion)
    })
}

/// Removes cgroups of Lull without processes, and the resources that they alone needed.
pub(crate) fn clean_up(hierarchy: &Hierarchy) {
    let bpffs = Bpffs::find().ok().flatten();
    let state = existing(bpffs.as_ref()).ok().flatten();
    tidy(hierarchy, state, &hierarchy.reap());
}

fn existing(bpffs: Option<&Bpffs>) -> Result<Option<State<'_>>> {
    bpffs.map_or(Ok(None), State::open_existing)
}

fn tidy(hierarchy: &Hierarchy, state: Option<State<'_>>, alive: &[String]) {
    // Programs out of sight may use it, too.
    if let Some(state) = state
        && hierarchy.sees_all()
    {
        // A slice made while `lull exec` ran needs it as long as the slice exists.
        let slices = slices(hierarchy).into_iter().map(|slice| slice.congestion);
        let alive: Vec<String> = alive.iter().cloned().chain(slices).collect();
        unload_unused(&state, &alive);
    }
}
