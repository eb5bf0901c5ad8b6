//! Simulated servers for tests of the scheduler: a queueing model with demand that arrives independently
//! (open loop), and with as many prefetches as are requested.

use std::collections::BTreeMap;

use core::time::Duration;

use super::{Action, End, Id, Prefetch, Scheduler, at};
use crate::scheduler::{Aborted, Parameters};

/// The service discipline of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Discipline {
    /// This many cores, shared by all requests (a CPU).
    Shared(usize),
    /// This many at a time, the others in the order of their arrival (a disk, or connections to a database).
    InOrder(usize),
}

/// How long the work of a request takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Work {
    Constant,
    Exponential,
    /// Nine of ten pages take a half, and the tenth 5.5 times as long.
    Pages,
}

/// A server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Server {
    pub(super) discipline: Discipline,
    pub(super) work: Work,
    /// The mean work of a request, in seconds.
    pub(super) mean: f64,
    /// An additional delay of each request, without use of a resource.
    pub(super) delay: f64,
    /// Whether an aborted request stops using the server.
    pub(super) abort_frees: bool,
    /// From this time on everything takes twice as long, until that one: another program uses the server.
    pub(super) neighbour: Option<(f64, f64)>,
    /// Prefetches are never answered.
    pub(super) hangs: bool,
}

/// How demand arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Arrivals {
    Poisson,
    /// At equal distances, as a load generator sends them.
    Even,
    /// Half of the time there are three times as many as in the other half, alternating every two seconds.
    Bursts,
}

/// The policy that sends prefetches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Policy {
    /// There are none.
    None,
    /// The server itself serves prefetches only with the capacity that demand leaves, at any time: the ideal.
    Nice19,
    /// One starts when there is a free place, and none is aborted.
    StrictPriority,
    Lull,
    /// The scheduler, and the server serves prefetches as with `Nice19`.
    LullIsolated,
}

/// The result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// Mean response time of demand, in seconds.
    pub(super) mean: f64,
    pub(super) p99: f64,
    /// The share of the server's capacity with useful prefetches.
    pub(super) reaped: f64,
    /// The lowest and the highest limit that occurred.
    pub(super) lowest_limit: f64,
    pub(super) highest_limit: f64,
    /// The share of demand beside another program's use of the server for which that was detected.
    pub(super) noticed: f64,
    /// Prefetches aborted because they hung.
    pub(super) hung: usize,
}

/// A generator of numbers (splitmix64).
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log(1.0 - self.uniform())
    }
}

#[derive(Clone, Copy, Debug)]
struct Job {
    is_demand: bool,
    /// Whether it is still wanted.
    is_wanted: bool,
    arrived: f64,
    ready: f64,
    work: f64,
    left: f64,
}

/// A server that is being used.
pub(super) struct Simulation {
    server: Server,
    policy: Policy,
    arrivals: Arrivals,
    rate: f64,
    now: f64,
    jobs: BTreeMap<Id, Job>,
    next_id: Id,
    scheduler: Scheduler,
    of_demand: Random,
    of_prefetches: Random,
    next_demand: f64,
    times: Vec<f64>,
    useful: f64,
    counts_from: f64,
    limits: (f64, f64),
    beside_neighbour: (usize, usize),
    hung: usize,
}

impl Simulation {
    /// `load` is a share of the server's capacity.
    pub(super) fn new(server: Server, policy: Policy, arrivals: Arrivals, load: f64) -> Self {
        let mut simulation = Simulation {
            server,
            policy,
            arrivals,
            rate: load * server.capacity(),
            now: 0.0,
            jobs: BTreeMap::new(),
            next_id: 0,
            scheduler: Scheduler::new(match policy {
                Policy::LullIsolated => Parameters::default().isolated(),
                _ => Parameters::default(),
            }),
            of_demand: Random(7),
            of_prefetches: Random(11),
            next_demand: 0.0,
            times: Vec::new(),
            useful: 0.0,
            counts_from: f64::INFINITY,
            limits: (f64::INFINITY, 0.0),
            beside_neighbour: (0, 0),
            hung: 0,
        };
        simulation.plan_demand();
        simulation
    }

    /// Runs for this many requests of demand, after a quarter as many that are not counted.
    pub(super) fn run(mut self, requests: usize) -> Outcome {
        let mut seen = 0;
        self.fill();
        while seen < requests + requests / 4 {
            if self.step() {
                seen += 1;
                if seen == requests / 4 {
                    self.counts_from = self.now;
                }
            }
        }
        self.times.sort_by(f64::total_cmp);
        let counted = self.times.len();
        let time = self.now - self.counts_from;
        Outcome {
            mean: self.times.iter().sum::<f64>() / counted as f64,
            p99: self.times[counted * 99 / 100],
            reaped: self.useful / time / self.server.capacity() / self.server.mean,
            lowest_limit: self.limits.0,
            highest_limit: self.limits.1,
            noticed: self.beside_neighbour.0 as f64 / self.beside_neighbour.1.max(1) as f64,
            hung: self.hung,
        }
    }

    fn plan_demand(&mut self) {
        let rate = match self.arrivals {
            Arrivals::Poisson | Arrivals::Even => self.rate,
            Arrivals::Bursts if libm::fmod(self.now, 4.0) < 2.0 => 1.5 * self.rate,
            Arrivals::Bursts => 0.5 * self.rate,
        };
        let gap = match self.arrivals {
            Arrivals::Even => 1.0 / rate,
            _ => self.of_demand.exponential(1.0 / rate),
        };
        self.next_demand = self.now + gap;
    }

    fn work(&self, random: &mut Random) -> (f64, u8) {
        let Server { work, mean, .. } = self.server;
        let draw = random.exponential(1.0);
        match work {
            Work::Constant => (mean, 0),
            Work::Exponential => (mean * draw, 0),
            Work::Pages if draw < 0.105 => (mean * 5.5, 1),
            Work::Pages => (mean * 0.5, 2),
        }
    }

    /// Advances to the next event. Returns whether that was a demand request.
    fn step(&mut self) -> bool {
        let rates = self.rates();
        let end = rates
            .iter()
            .map(|(id, rate)| self.now + self.jobs[id].left / rate)
            .fold(f64::INFINITY, f64::min);
        let ready = self
            .jobs
            .values()
            .filter(|job| job.ready > self.now)
            .map(|job| job.ready)
            .fold(f64::INFINITY, f64::min);
        let poll = match self.policy {
            Policy::Lull | Policy::LullIsolated => self.scheduler.next_poll(at(self.now)),
            _ => None,
        };
        let poll = poll.map_or(f64::INFINITY, |poll| poll.as_nanos() as f64 / 1e9 + 1e-9);
        let next = end.min(ready).min(poll.max(self.now)).min(self.next_demand);
        for (id, rate) in &rates {
            if let Some(job) = self.jobs.get_mut(id) {
                job.left -= rate * (next - self.now);
            }
        }
        self.now = next;
        self.finish();
        let is_demand = self.now >= self.next_demand;
        if is_demand {
            self.demand();
        }
        self.fill();
        is_demand
    }

    /// The rate of each request in progress.
    fn rates(&self) -> Vec<(Id, f64)> {
        // One that hangs uses nothing.
        let goes_on = |job: &Job| job.ready <= self.now && (job.is_demand || !self.server.hangs);
        let ready = || self.jobs.iter().filter(|(_, job)| goes_on(job));
        let slower = match self.server.neighbour {
            Some((from, to)) if self.now >= from && self.now < to => 0.5,
            _ => 1.0,
        };
        let is_nice = matches!(self.policy, Policy::Nice19 | Policy::LullIsolated);
        let (first, second): (Vec<_>, Vec<_>) =
            ready().partition(|(_, job)| job.is_demand || !is_nice);
        let mut rates = Vec::new();
        let (Discipline::Shared(places) | Discipline::InOrder(places)) = self.server.discipline;
        let mut left = places as f64;
        for group in [first, second] {
            let each = match self.server.discipline {
                Discipline::Shared(_) => (left / group.len().max(1) as f64).min(1.0),
                Discipline::InOrder(_) => 1.0,
            };
            for (id, _) in group {
                if left > 1e-9 {
                    rates.push((*id, each * slower));
                    left -= each;
                }
            }
        }
        rates
    }

    fn finish(&mut self) {
        let done: Vec<Id> = self
            .jobs
            .iter()
            .filter(|(_, job)| job.left <= 1e-12 && job.ready <= self.now)
            .map(|(id, _)| *id)
            .collect();
        for id in done {
            let Some(job) = self.jobs.remove(&id) else { continue };
            let (now, counts) = (at(self.now), self.now >= self.counts_from);
            if job.is_demand {
                if counts && job.arrived >= self.counts_from {
                    self.times.push(self.now - job.arrived);
                }
                self.scheduler.handle_demand_end(now, id, End::Served);
            } else if job.is_wanted {
                if counts {
                    self.useful += job.work;
                }
                self.scheduler.handle_prefetch_end(now, id, End::Served);
            }
        }
    }

    fn begin(&mut self, id: Id, is_demand: bool) -> u8 {
        let mut random =
            if is_demand { self.of_demand.clone() } else { self.of_prefetches.clone() };
        let (work, class) = self.work(&mut random);
        if is_demand {
            self.of_demand = random;
        } else {
            self.of_prefetches = random;
        }
        let (arrived, ready) = (self.now, self.now + self.server.delay);
        self.jobs.insert(id, Job { is_demand, is_wanted: true, arrived, ready, work, left: work });
        class
    }

    fn demand(&mut self) {
        self.next_id += 1;
        let id = self.next_id;
        let class = self.begin(id, true);
        self.plan_demand();
        if matches!(self.policy, Policy::Lull | Policy::LullIsolated) {
            self.scheduler.handle_demand(at(self.now), id, class);
            let figures = self.scheduler.figures(at(self.now));
            let limit = figures.limit.limit;
            if self.server.neighbour.is_some_and(|(from, to)| from <= self.now && self.now < to) {
                self.beside_neighbour.0 += usize::from(figures.has_neighbour);
                self.beside_neighbour.1 += 1;
            }
            if self.counts_from.is_finite() {
                self.limits = (self.limits.0.min(limit), self.limits.1.max(limit));
            }
        }
    }

    /// Sends prefetches up to the limit: there are always more.
    fn fill(&mut self) {
        let (Discipline::Shared(places) | Discipline::InOrder(places)) = self.server.discipline;
        match self.policy {
            Policy::None => {}
            Policy::Nice19 => {
                // As many as keep it busy, with their additional waits.
                let many = places + (places as f64 * self.server.delay / self.server.mean) as usize;
                while self.jobs.values().filter(|job| !job.is_demand).count() < many {
                    self.next_id += 1;
                    self.begin(self.next_id, false);
                }
            }
            Policy::StrictPriority => {
                while self.jobs.len() < places {
                    self.next_id += 1;
                    self.begin(self.next_id, false);
                }
            }
            Policy::Lull | Policy::LullIsolated => self.fill_by_scheduler(),
        }
    }

    fn fill_by_scheduler(&mut self) {
        let now = at(self.now);
        for _ in 0..1_000 {
            let waiting = self.scheduler.figures(now).waiting;
            for _ in waiting..4 {
                self.next_id += 1;
                let one = Prefetch { id: self.next_id, client: self.next_id, priority: 1.0 };
                self.scheduler.handle_prefetch(now, one, Duration::ZERO);
            }
            match self.scheduler.poll(now) {
                Some(Action::Start(id)) => {
                    self.begin(id, false);
                }
                Some(Action::Abort(id, why)) => {
                    self.hung += usize::from(why == Aborted::Hung);
                    if self.server.abort_frees {
                        self.jobs.remove(&id);
                    } else if let Some(job) = self.jobs.get_mut(&id) {
                        job.is_wanted = false;
                    }
                }
                Some(Action::Refuse(..)) => {}
                None => return,
            }
        }
        panic!("the scheduler does not come to rest");
    }
}

impl Server {
    /// A CPU with this many cores, which stops for an aborted request.
    pub(super) const fn cpu(cores: usize) -> Self {
        Server {
            discipline: Discipline::Shared(cores),
            work: Work::Exponential,
            mean: 0.01,
            delay: 0.0,
            abort_frees: true,
            neighbour: None,
            hangs: false,
        }
    }

    /// Requests a second.
    fn capacity(&self) -> f64 {
        let (Discipline::Shared(places) | Discipline::InOrder(places)) = self.discipline;
        places as f64 / self.mean
    }
}
