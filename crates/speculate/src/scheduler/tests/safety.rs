//! Properties that must always hold, for any events in any order.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const PARAMETERS: Parameters = Parameters {
    waiting: 12,
    per_client: 4,
    patience: Duration::from_secs(10),
    half_life: Duration::from_secs(5),
    most_in_service: 3,
    hung: Duration::from_secs(2),
    document: 10,
    is_isolated: false,
};

#[derive(Clone, Debug)]
enum Step {
    Demand(u8),
    Head(u8),
    DemandEnd(u8, End),
    Prefetch(u64, f64),
    PrefetchEnd(u8, End),
    Cancel(u8),
    Later(u16),
    Poll,
}

fn ends() -> impl Strategy<Value = End> {
    prop_oneof![5 => Just(End::Served), 1 => Just(End::Cancelled), 1 => Just(End::Failed)]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let priority =
        prop_oneof![0.01f64..10.0, Just(0.0), Just(f64::NAN), Just(-1.0), Just(f64::INFINITY)];
    let step = prop_oneof![
        3 => any::<u8>().prop_map(Step::Demand),
        2 => any::<u8>().prop_map(Step::Head),
        3 => (any::<u8>(), ends()).prop_map(|(one, end)| Step::DemandEnd(one, end)),
        4 => (0u64..5, priority).prop_map(|(client, priority)| Step::Prefetch(client, priority)),
        3 => (any::<u8>(), ends()).prop_map(|(one, end)| Step::PrefetchEnd(one, end)),
        1 => any::<u8>().prop_map(Step::Cancel),
        3 => (0u16..4_000).prop_map(Step::Later),
        4 => Just(Step::Poll),
    ];
    prop::collection::vec(step, 0..400)
}

/// The state of the caller.
#[derive(Default)]
struct Caller {
    next: Id,
    demand: BTreeSet<Id>,
    waiting: BTreeMap<Id, u64>,
    running: BTreeSet<Id>,
}

impl Caller {
    fn pick<T: Copy>(from: impl Iterator<Item = T>, which: u8) -> Option<T> {
        let all: Vec<T> = from.collect();
        (!all.is_empty()).then(|| all[usize::from(which) % all.len()])
    }

    /// Each prefetch is refused while it waits, or starts and is aborted while it runs; there is no other
    /// action.
    fn take(&mut self, action: Action) {
        match action {
            Action::Start(id) => {
                assert!(self.waiting.remove(&id).is_some(), "{id} starts and does not wait");
                self.running.insert(id);
            }
            Action::Refuse(id, _) => {
                assert!(self.waiting.remove(&id).is_some(), "{id} is refused and does not wait");
            }
            Action::Abort(id, _) => {
                assert!(self.running.remove(&id), "{id} is aborted and does not run");
            }
        }
    }

    fn step(&mut self, scheduler: &mut Scheduler, now: &mut Timestamp, step: &Step) {
        match *step {
            Step::Demand(class) => {
                self.next += 1;
                self.demand.insert(self.next);
                scheduler.handle_demand(*now, self.next, class);
            }
            Step::Head(which) => {
                let all = self.demand.iter().chain(&self.running).copied();
                if let Some(id) = Self::pick(all, which) {
                    scheduler.handle_head(*now, id);
                }
            }
            Step::DemandEnd(which, end) => {
                if let Some(id) = Self::pick(self.demand.iter().copied(), which) {
                    self.demand.remove(&id);
                    scheduler.handle_demand_end(*now, id, end);
                }
            }
            Step::Prefetch(client, priority) => {
                self.next += 1;
                self.waiting.insert(self.next, client);
                scheduler.handle_prefetch(
                    *now,
                    prefetch(self.next, client, priority),
                    Duration::ZERO,
                );
            }
            Step::PrefetchEnd(which, end) => {
                if let Some(id) = Self::pick(self.running.iter().copied(), which) {
                    self.running.remove(&id);
                    scheduler.handle_prefetch_end(*now, id, end);
                }
            }
            Step::Cancel(which) => {
                let all = self.waiting.keys().copied().chain(self.running.iter().copied());
                if let Some(id) = Self::pick(all, which) {
                    self.waiting.remove(&id);
                    self.running.remove(&id);
                    scheduler.handle_cancel(*now, id);
                }
            }
            Step::Later(millis) => *now += Duration::from_millis(u64::from(millis)),
            Step::Poll => {}
        }
    }
}

proptest! {
    /// The caller's state and the scheduler's agree after each step. A prefetch is answered once, the limit
    /// of prefetches in service holds, and a client has at most its share of places in the queue.
    #[test]
    fn each_prefetch_is_answered_once_and_limits_hold(steps in steps()) {
        let mut scheduler = Scheduler::new(PARAMETERS);
        let (mut caller, mut now) = (Caller::default(), Timestamp::ZERO);
        for step in &steps {
            caller.step(&mut scheduler, &mut now, step);
            for action in actions(&mut scheduler, now) {
                if matches!(action, Action::Start(_)) {
                    let figures = scheduler.figures(now);
                    prop_assert!(figures.demand + figures.prefetches <= figures.limit.limit.max(1.0) as usize);
                }
                caller.take(action);
            }
            let figures = scheduler.figures(now);
            prop_assert!(figures.prefetches <= PARAMETERS.most_in_service);
            prop_assert!(caller.waiting.len() <= PARAMETERS.waiting);
            prop_assert_eq!(figures.waiting, caller.waiting.len());
            prop_assert!(figures.prefetches <= caller.running.len());
            for client in 0..5 {
                let own = caller.waiting.values().filter(|one| **one == client).count();
                prop_assert!(own <= PARAMETERS.per_client);
            }
            if let Some(next) = scheduler.next_poll(now) {
                prop_assert!(next > now, "polled at {now}, it asks for {next}");
            }
        }
    }

    /// Demand is never delayed: there is no action for it, and its only effects are aborts. After it has
    /// come, the requests in service are at most the limit, and one prefetch that is nearly done.
    #[test]
    fn demand_meets_at_most_one_prefetch_above_the_limit(steps in steps(), class in any::<u8>()) {
        let mut scheduler = Scheduler::new(PARAMETERS);
        let (mut caller, mut now) = (Caller::default(), Timestamp::ZERO);
        for step in &steps {
            caller.step(&mut scheduler, &mut now, step);
            actions(&mut scheduler, now).into_iter().for_each(|action| caller.take(action));
        }
        caller.step(&mut scheduler, &mut now, &Step::Demand(class));
        let figures = scheduler.figures(now);
        let limit = figures.limit.limit.max(1.0) as usize;
        let over = (figures.demand + figures.prefetches).saturating_sub(limit);
        prop_assert!(figures.prefetches <= 1 || over <= 1, "{figures:?}");
        for action in actions(&mut scheduler, now) {
            prop_assert!(!matches!(action, Action::Start(_)) || over == 0);
        }
    }

    /// The priority decides, and halves with each half-life.
    #[test]
    fn queue_order_equals_a_sorted_list(
        arrivals in prop::collection::vec((0u32..200, 1u32..1_000), 1..40)
    ) {
        let mut queue = queue::Queue::new(100, 100, Duration::from_secs(10));
        let mut now = 0.0;
        let mut list: Vec<(f64, Id)> = Vec::new();
        for (id, (later, priority)) in arrivals.into_iter().enumerate() {
            now += f64::from(later) / 10.0;
            let id = id as Id;
            let priority = f64::from(priority);
            prop_assert_eq!(queue.push(at(now), prefetch(id, id, priority), at(1e6)), None);
            list.push((priority * libm::exp2(now / 10.0), id));
        }
        list.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        for (worth, id) in list {
            let Some((first, _)) = queue.pop() else { return Err(TestCaseError::fail("empty")) };
            // Rounding may exchange equal priorities.
            prop_assert!(first.id == id || worth > 0.0);
        }
        prop_assert!(queue.pop().is_none());
    }
}

#[test]
fn full_queue_drops_the_lowest_priority() {
    let mut scheduler = Scheduler::new(Parameters { waiting: 2, ..PARAMETERS });
    scheduler.handle_demand(at(0.0), 1, 0);
    for (id, priority) in [(2, 0.3), (3, 0.1), (4, 0.2)] {
        scheduler.handle_prefetch(at(0.0), prefetch(id, id, priority), Duration::ZERO);
    }
    assert_eq!(actions(&mut scheduler, at(0.0)), [Action::Refuse(3, Refused::Full)]);
    scheduler.handle_demand_end(at(0.1), 1, End::Served);
    assert_eq!(actions(&mut scheduler, at(0.1)), [Action::Start(2)]);
}

#[test]
fn client_that_marks_all_requests_does_not_fill_the_queue() {
    let mut scheduler = Scheduler::new(Parameters::default());
    scheduler.handle_demand(at(0.0), 1, 0);
    for id in 2..1_002 {
        scheduler.handle_prefetch(at(0.0), prefetch(id, 7, 9.0), Duration::ZERO);
    }
    let refused = actions(&mut scheduler, at(0.0));
    assert_eq!(refused.len(), 1_000 - Parameters::default().per_client);
    assert!(refused.iter().all(|action| matches!(action, Action::Refuse(_, Refused::Full))));
    scheduler.handle_prefetch(at(0.0), prefetch(2_000, 8, 1.0), Duration::ZERO);
    assert_eq!(actions(&mut scheduler, at(0.0)), []);
    assert!(scheduler.is_waiting(2_000));
}

#[test]
fn cancelled_prefetches_leave_no_state() {
    let mut scheduler = Scheduler::new(Parameters::default());
    for id in 0..20_000 {
        scheduler.handle_prefetch(at(0.0), prefetch(id, id, 1.0), Duration::ZERO);
        // Some wait by then, some run, and the start of some is still to be taken.
        if id % 3 == 0 {
            scheduler.poll(at(0.0));
        }
        scheduler.handle_cancel(at(0.0), id);
    }
    let figures = scheduler.figures(at(0.0));
    assert_eq!((figures.waiting, figures.prefetches), (0, 0));
    assert_eq!(actions(&mut scheduler, at(0.0)), []);
}

#[test]
fn prefetch_that_started_last_is_aborted_first() {
    let mut scheduler = Scheduler::new(PARAMETERS);
    scheduler.limit.set(3.0);
    scheduler.handle_prefetch(at(0.0), prefetch(5, 1, 1.0), Duration::ZERO);
    assert_eq!(actions(&mut scheduler, at(0.0)), [Action::Start(5)]);
    scheduler.handle_prefetch(at(0.1), prefetch(2, 2, 1.0), Duration::ZERO);
    assert_eq!(actions(&mut scheduler, at(0.1)), [Action::Start(2)]);
    scheduler.handle_demand(at(0.2), 10, 0);
    assert_eq!(actions(&mut scheduler, at(0.2)), []);
    scheduler.handle_demand(at(0.2), 11, 0);
    assert_eq!(actions(&mut scheduler, at(0.2)), [Action::Abort(2, Aborted::Demand)]);
    // The oldest hangs first, with any number.
    assert_eq!(scheduler.next_poll(at(0.2)), Some(at(2.0)));
}
