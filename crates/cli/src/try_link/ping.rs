//! Round-trip times of a connection in the foreground.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::bail;

use super::remote::Remote;

/// From one request to the next, if the reply has come by then.
const INTERVAL: Duration = Duration::from_millis(100);

/// A reply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// Seconds from the start of the measurement to the request.
    pub(super) sent_at: f64,
    /// Milliseconds from the request to its reply.
    pub(super) ms: f64,
}

/// Sends a line to the other end again and again, which sends it back.
pub(super) struct Ping {
    child: Child,
    origin: Instant,
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    samples: Vec<Sample>,
    waits_since: Option<Instant>,
    is_to_end: bool,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ping {
    pub(super) fn start(remote: &Remote) -> anyhow::Result<Self> {
        let (mut child, output) = remote.start(&[], "exec cat")?;
        let input = child.stdin.take().expect("it is a pipe");
        let (origin, state) = (Instant::now(), Arc::new(Mutex::new(State::default())));
        let shared = Arc::clone(&state);
        let thread = thread::spawn(move || exchange(input, output, origin, &shared));
        Ok(Ping { child, origin, state, thread: Some(thread) })
    }

    /// Since the start of the measurement.
    pub(super) fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }

    /// # Errors
    /// If the connection has ended.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            bail!("the connection that measures the round-trip time has ended");
        }
        Ok(())
    }

    /// The replies so far, and the request that has waited for longer than the usual interval.
    pub(super) fn samples(&self) -> Vec<Sample> {
        let state = lock(&self.state);
        let mut samples = state.samples.clone();
        if let Some(since) = state.waits_since.filter(|since| since.elapsed() > INTERVAL) {
            samples.push(self.sample(since));
        }
        samples
    }

    fn sample(&self, since: Instant) -> Sample {
        let sent_at = since.duration_since(self.origin).as_secs_f64();
        Sample { sent_at, ms: since.elapsed().as_secs_f64() * 1e3 }
    }

    /// Ends the connection, and returns all replies.
    pub(super) fn finish(self) -> Vec<Sample> {
        self.samples()
    }
}

impl Drop for Ping {
    fn drop(&mut self) {
        lock(&self.state).is_to_end = true;
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn exchange(
    mut input: ChildStdin,
    mut output: BufReader<ChildStdout>,
    origin: Instant,
    state: &Mutex<State>,
) {
    let mut line = String::new();
    while !lock(state).is_to_end {
        let sent = Instant::now();
        lock(state).waits_since = Some(sent);
        line.clear();
        let answered = input.write_all(b"ping\n").and_then(|()| output.read_line(&mut line));
        if !matches!(answered, Ok(1..)) {
            return;
        }
        let took = sent.elapsed();
        let sample = Sample {
            sent_at: sent.duration_since(origin).as_secs_f64(),
            ms: took.as_secs_f64() * 1e3,
        };
        let mut state = lock(state);
        state.waits_since = None;
        state.samples.push(sample);
        drop(state);
        thread::sleep(INTERVAL.saturating_sub(took));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_timed_until_the_connection_ends() {
        let mut ping = Ping::start(&Remote::new("sh -c", "eval \"exec $0\"").unwrap()).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while ping.samples().len() < 3 && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        ping.check().unwrap();
        let samples = ping.samples();
        assert!(samples.len() >= 3, "{samples:?}");
        assert!(samples.windows(2).all(|pair| pair[0].sent_at < pair[1].sent_at), "{samples:?}");
        ping.child.kill().unwrap();
        while ping.check().is_ok() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(ping.check().is_err());
    }
}
