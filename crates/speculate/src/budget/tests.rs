mod liveness;
mod rules;
mod safety;

use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);
const EPOCH: Duration = Duration::from_millis(100);
/// A client's first list on its page, with many candidates.
const FIRST: Wanted = Wanted { files: 100, pointed: false, first: true };

/// A budget with a server whose time for each probe is given by a function.
struct Server<F> {
    budget: Budget,
    now: Timestamp,
    answers: F,
    under_way: Option<(Probe, Timestamp, Option<Duration>)>,
    probes: u32,
}

impl<F: FnMut(&Budget, Timestamp) -> Option<Duration>> Server<F> {
    fn new(parameters: Parameters, answers: F) -> Self {
        let budget = Budget::new(parameters, Timestamp::ZERO);
        Server { budget, now: Timestamp::ZERO, answers, under_way: None, probes: 0 }
    }

    fn run(&mut self, epochs: u32) {
        let end = self.now + epochs * EPOCH;
        loop {
            let poll = self.budget.next_poll().max(self.now);
            let answer = self.under_way.map_or(Timestamp::FAR_FUTURE, |(_, at, _)| at);
            if poll.min(answer) >= end {
                break;
            }
            self.now = poll.min(answer);
            let again = if answer <= poll {
                let (probe, _, time) = self.under_way.take().unwrap();
                match self.budget.handle_sample(self.now, probe, time) {
                    Outcome::Again(probe) => Some(probe),
                    _ => None,
                }
            } else {
                self.budget.poll(self.now)
            };
            if let Some(probe) = again {
                self.probes += 1;
                let time = (self.answers)(&self.budget, self.now);
                let at = time.map_or(Timestamp::FAR_FUTURE, |time| self.now + time);
                self.under_way = Some((probe, at, time));
            }
        }
        self.now = end;
    }
}

fn paper() -> Parameters {
    Parameters::paper([10 * MS])
}

fn learned() -> Parameters {
    let learning = Learning { every: Duration::from_secs(60), rest: 1, ..Learning::default() };
    Parameters {
        thresholds: Thresholds::Learned { objects: 2, learning },
        unused: Unused::Grows,
        ..Parameters::shipped(2)
    }
}
