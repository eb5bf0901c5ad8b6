//! The congestion controllers of the background, by name.

use std::fmt;
use std::str::FromStr;

use lull_cc::lull::{Part, SharedPath};
use lull_cc::{
    Ack, Bbr, Controller, Cubic, LedbatPlusPlus, Nice, NiceParameters, Pacing, Reno, TcpLp,
    TcpLpParameters, Timestamp, Window,
};
use lull_sim::traffic::ControllerFactory;
use serde::Serialize;

use super::cells::ForegroundControl;

/// For the foreground's BBR; each cell adds its own random numbers.
const BBR_SEED: u64 = 1;

/// The controller of background connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Scheme {
    /// No background: the control, which keeps 1.0 of everything.
    #[serde(rename = "none")]
    None,
    /// Lull: one window for the connections of a host.
    #[serde(rename = "lull")]
    Lull,
    /// TCP Nice with this project's refinements.
    #[serde(rename = "nice")]
    Nice,
    /// CUBIC: a background that does not yield.
    #[serde(rename = "cubic")]
    Cubic,
    /// Downloads from CUBIC senders: their receivers yield by their advertised windows.
    #[serde(rename = "download-cubic")]
    DownloadCubic,
    /// The same from Reno senders.
    #[serde(rename = "download-reno")]
    DownloadReno,
    /// The same from BBR senders.
    #[serde(rename = "download-bbr")]
    DownloadBbr,
    /// LEDBAT++.
    #[serde(rename = "ledbat++")]
    LedbatPlusPlus,
    /// TCP-LP.
    #[serde(rename = "tcp-lp")]
    TcpLp,
}

impl Scheme {
    const ALL: [Scheme; 9] = [
        Scheme::None,
        Scheme::Lull,
        Scheme::Nice,
        Scheme::Cubic,
        Scheme::DownloadCubic,
        Scheme::DownloadReno,
        Scheme::DownloadBbr,
        Scheme::LedbatPlusPlus,
        Scheme::TcpLp,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::None => "none",
            Scheme::Lull => "lull",
            Scheme::Nice => "nice",
            Scheme::Cubic => "cubic",
            Scheme::DownloadCubic => "download-cubic",
            Scheme::DownloadReno => "download-reno",
            Scheme::DownloadBbr => "download-bbr",
            Scheme::LedbatPlusPlus => "ledbat++",
            Scheme::TcpLp => "tcp-lp",
        }
    }

    /// Whether the receivers of the background yield.
    pub(super) fn steers(self) -> bool {
        matches!(self, Scheme::DownloadCubic | Scheme::DownloadReno | Scheme::DownloadBbr)
    }

    /// Makes the controllers of one host's connections, which share `path` under Lull; nothing without a
    /// background.
    pub(super) fn host(
        self,
        path: &SharedPath,
        without: &[AblatedPart],
    ) -> Option<ControllerFactory> {
        Some(match self {
            Scheme::None => return None,
            Scheme::Lull => {
                let (path, without) = (path.clone(), without.to_vec());
                ControllerFactory::boxed(move || {
                    let alone = without.contains(&AblatedPart::Sharing).then(SharedPath::default);
                    let path = alone.as_ref().unwrap_or(&path);
                    without.iter().for_each(|part| part.leave_out(path));
                    Box::new(path.join())
                })
            }
            Scheme::Nice => ControllerFactory::new(|| Nice::new(NiceParameters::refined())),
            Scheme::Cubic | Scheme::DownloadCubic => ControllerFactory::new(Cubic::new),
            Scheme::DownloadReno => ControllerFactory::new(Reno::new),
            Scheme::DownloadBbr => ControllerFactory::new(|| NeverAppLimited(Bbr::new(BBR_SEED))),
            Scheme::LedbatPlusPlus => ControllerFactory::new(LedbatPlusPlus::new),
            Scheme::TcpLp => ControllerFactory::new(|| TcpLp::new(TcpLpParameters::default())),
        })
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// There is no congestion controller of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no controller '{0}': choose {names}", names = names())]
pub struct UnknownSchemeError(String);

fn names() -> String {
    Scheme::ALL.map(Scheme::name).join(", ")
}

impl FromStr for Scheme {
    type Err = UnknownSchemeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Scheme::ALL.into_iter().find(|scheme| scheme.name() == text);
        found.ok_or_else(|| UnknownSchemeError(text.to_owned()))
    }
}

/// A part of Lull that `lull lab score --without` leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AblatedPart {
    /// Connections of a host share a window.
    Sharing,
    /// The host's own foreground is counted.
    HostForeground,
    /// A part of the shared path.
    OfPath(Part),
}

impl AblatedPart {
    const ALL: [(AblatedPart, &str); 10] = [
        (AblatedPart::Sharing, "sharing"),
        (AblatedPart::HostForeground, "host-foreground"),
        (AblatedPart::OfPath(Part::Memory), "memory"),
        (AblatedPart::OfPath(Part::FloorByTime), "floor-by-time"),
        (AblatedPart::OfPath(Part::MinimumProgress), "minimum-progress"),
        (AblatedPart::OfPath(Part::ShallowRules), "shallow-rules"),
        (AblatedPart::OfPath(Part::NoiseFloor), "noise-floor"),
        (AblatedPart::OfPath(Part::Trains), "trains"),
        (AblatedPart::OfPath(Part::LongerPath), "longer-path"),
        (AblatedPart::OfPath(Part::EmptyingRound), "emptying-round"),
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|part| part.0 == self).expect("each part has a name").1
    }

    fn leave_out(self, path: &SharedPath) {
        if let AblatedPart::OfPath(part) = self {
            path.lock().leave_out(part);
        }
    }
}

impl Serialize for AblatedPart {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// There is no part of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no part '{0}': choose {names}", names = AblatedPart::ALL.map(|part| part.1).join(", "))]
pub struct UnknownPartError(String);

impl FromStr for AblatedPart {
    type Err = UnknownPartError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|part| part.1 == text);
        found.map(|part| part.0).ok_or_else(|| UnknownPartError(text.to_owned()))
    }
}

/// The controllers of a foreground download.
pub(super) fn foreground_control(control: ForegroundControl) -> ControllerFactory {
    match control {
        ForegroundControl::Cubic => ControllerFactory::new(Cubic::new),
        ForegroundControl::Reno => ControllerFactory::new(Reno::new),
        ForegroundControl::Bbr => ControllerFactory::new(|| Bbr::new(BBR_SEED)),
    }
}

/// Linux treats a sender limited by the advertised window like one limited by the network
/// (`tcp_rate_check_app_limited`), so that BBR's rate follows the window down.
struct NeverAppLimited<C>(C);

impl<C: Controller> Controller for NeverAppLimited<C> {
    fn handle_ack(&mut self, ack: &Ack) {
        self.0.handle_ack(&Ack { app_limited: false, ..*ack });
    }

    fn handle_loss(&mut self, now: Timestamp, delivered: u32) {
        self.0.handle_loss(now, delivered);
    }

    fn handle_mark(&mut self, now: Timestamp, delivered: u32) {
        self.0.handle_mark(now, delivered);
    }

    fn handle_timeout(&mut self, now: Timestamp, delivered: u32) {
        self.0.handle_timeout(now, delivered);
    }

    fn handle_idle(&mut self, now: Timestamp) {
        self.0.handle_idle(now);
    }

    fn handle_send(&mut self, now: Timestamp, delivered: u32) {
        self.0.handle_send(now, delivered);
    }

    fn window(&self) -> Window {
        self.0.window()
    }

    fn slow_start_threshold(&self) -> Window {
        self.0.slow_start_threshold()
    }

    fn packets(&self, in_flight: u32) -> u32 {
        self.0.packets(in_flight)
    }

    fn pacing(&self, smoothed_rtt_micros: u32, packet_bytes: u32) -> Option<Pacing> {
        self.0.pacing(smoothed_rtt_micros, packet_bytes)
    }
}
