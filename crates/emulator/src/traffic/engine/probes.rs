//! Probes: the order of transfers, and their times.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::super::socket::{Role, connecting};
use super::super::{Placed, Probes, TrafficError, Transfer, Work, sys};
use super::{DueWork, Engine, Socket, TURN};
use crate::random::Random;

/// A group of probes.
#[derive(Debug)]
pub(super) struct Prober {
    probes: Probes,
    /// The group once for each action: under the primary transfer's control, and under that of the secondary
    /// ones.
    placed: Vec<(Placed, Option<Placed>)>,
    /// The remaining actions of this round, by number.
    round: Vec<usize>,
    rounds_left: u32,
    current: Option<Current>,
}

/// The current action.
#[derive(Debug)]
struct Current {
    action: usize,
    asked: Instant,
    /// The primary transfer's token, its sender's end, and its received bytes.
    primary: (u64, SocketAddr),
    received: u64,
    secondaries: Vec<u64>,
    beside: BTreeSet<SocketAddr>,
    received_beside: u64,
}

/// The sender's end of a probe's transfer.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) stream: TcpStream,
    /// The bytes still to send; none if it continues until it is ended.
    unsent: Option<u64>,
}

impl Sending {
    pub(super) fn has_more(&self) -> bool {
        self.unsent != Some(0)
    }

    /// Writes as much as the socket accepts.
    pub(super) fn turn(&mut self, chunk: &[u8]) -> io::Result<()> {
        for _ in 0..TURN {
            let left = self.unsent.unwrap_or(u64::MAX);
            let length = chunk.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            if length == 0 {
                break;
            }
            match self.stream.write(&chunk[..length]) {
                Ok(written) => {
                    self.unsent = self.unsent.map(|left| left - written as u64);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Prober {
    /// None if the group does not consist of probes.
    pub(super) fn new(placed: &Placed) -> Option<Self> {
        let Work::Probes(probes) = &placed.work else { return None };
        let under = |name: &String| {
            let control = placed.controls.get(name).cloned().unwrap_or_else(|| {
                CString::new(name.as_str()).expect("names of controls were checked")
            });
            Placed { control, ..placed.clone() }
        };
        let actions = probes.actions.iter();
        let placed =
            actions.map(|one| (under(&one.primary), one.secondary.as_ref().map(under))).collect();
        Some(Prober {
            probes: probes.clone(),
            placed,
            round: Vec::new(),
            rounds_left: 0,
            current: None,
        })
    }

    fn start(&mut self) {
        self.round.clear();
        self.rounds_left = self.probes.rounds;
        self.current = None;
    }

    /// The next action, drawn from the remaining ones of this round.
    fn draw(&mut self, random: &mut Random) -> Option<usize> {
        if self.round.is_empty() {
            self.rounds_left = self.rounds_left.checked_sub(1)?;
            self.round = (0..self.probes.actions.len()).collect();
        }
        let at = random.below(self.round.len());
        Some(self.round.swap_remove(at))
    }

    /// Whether all actions have been performed.
    pub(super) fn is_done(&self) -> bool {
        self.rounds_left == 0 && self.round.is_empty() && self.current.is_none()
    }
}

impl Engine {
    /// Starts a group of probes; returns whether it is one.
    pub(super) fn begin_probes(&mut self, group: usize) -> bool {
        let state = &mut self.groups[group];
        let Some(prober) = &mut state.prober else { return false };
        prober.start();
        self.pause_probes(group, Duration::ZERO);
        true
    }

    /// Performs the next action after a pause.
    fn pause_probes(&mut self, group: usize, rest: Duration) {
        let state = &self.groups[group];
        let Some(prober) = &state.prober else { return };
        let (activity, think) = (state.activity, prober.probes.think);
        let at = Instant::now() + rest + self.random.exponential(think);
        self.schedule(at, DueWork::Probe { group, activity });
    }

    /// Performs the next action, if there is one.
    pub(super) fn probe(&mut self, group: usize) -> Result<(), TrafficError> {
        let Some(prober) = &mut self.groups[group].prober else { return Ok(()) };
        let Some(action) = prober.draw(&mut self.random) else { return Ok(()) };
        let (primary, secondary) = prober.placed[action].clone();
        let (bytes, count) = (prober.probes.bytes, prober.probes.actions[action].secondaries());
        let asked = Instant::now();
        let primary = self.send(group, &primary, Some(bytes))?;
        let mut beside = Vec::new();
        if let Some(secondary) = secondary {
            for _ in 0..count {
                beside.push(self.send(group, &secondary, None)?);
            }
        }
        let current = Current {
            action,
            asked,
            primary,
            received: 0,
            secondaries: beside.iter().map(|(token, _)| *token).collect(),
            beside: beside.iter().map(|(_, end)| *end).collect(),
            received_beside: 0,
        };
        if let Some(prober) = &mut self.groups[group].prober {
            prober.current = Some(current);
        }
        Ok(())
    }

    /// A new transfer: its token, and its sender's end.
    fn send(
        &mut self,
        group: usize,
        placed: &Placed,
        unsent: Option<u64>,
    ) -> Result<(u64, SocketAddr), TrafficError> {
        let address = self.groups[group].address;
        let stream = connecting(placed, &placed.from, Role::Data, address)?;
        let end = stream.local_addr().map_err(TrafficError::system("asking for an address"))?;
        self.groups[group].tally.flows.insert((end, address));
        let token = self.add(group, Socket::Probe(Sending { stream, unsent }))?;
        Ok((token, end))
    }

    /// Data was received from `peer`; with the last byte of the primary transfer the action ends.
    pub(super) fn probe_received(&mut self, group: usize, peer: SocketAddr, bytes: u64) {
        let Some(prober) = &mut self.groups[group].prober else { return };
        let Some(current) = &mut prober.current else { return };
        if current.beside.contains(&peer) {
            current.received_beside += bytes;
        } else if current.primary.1 == peer {
            current.received += bytes;
            if current.received >= prober.probes.bytes {
                let transfer = Transfer {
                    action: current.action,
                    asked: current.asked,
                    time: current.asked.elapsed(),
                    received_beside: current.received_beside,
                };
                self.groups[group].tally.transfers.push(transfer);
                self.end_action(group);
            }
        }
    }

    /// A connection failed. If it is the primary one, the action does not count, and is repeated.
    pub(super) fn lose_probe(&mut self, group: usize, token: u64) {
        let Some(prober) = &mut self.groups[group].prober else { return };
        let Some(current) = &prober.current else { return };
        if current.primary.0 == token {
            prober.round.push(current.action);
            self.end_action(group);
        }
    }

    fn end_action(&mut self, group: usize) {
        let Some(prober) = &mut self.groups[group].prober else { return };
        let Some(current) = prober.current.take() else { return };
        let rest = prober.probes.rest;
        self.remove(current.primary.0);
        for token in current.secondaries {
            if let Some(entry) = self.entries.get(&token) {
                // Its unsent data would delay the next action.
                let _ = sys::set_abort_on_close(&entry.socket.descriptor());
            }
            self.remove(token);
        }
        self.pause_probes(group, rest);
    }
}
