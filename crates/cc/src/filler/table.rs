//! Every protocol of the filler paper, one row each.

/// A number in hundredths, as the paper writes its exponents and factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hundredths(pub u32);

/// The part of the window that a drop leaves (§3.1 to §3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decrease {
    /// cwnd − c packets (§3.1).
    Linear(u32),
    /// cwnd − cwnd^e (§3.2, table 1).
    LessPower(Hundredths),
    /// cwnd · f (§3.3, table 2).
    Multiplicative(Hundredths),
    /// cwnd^e (§3.4, table 3).
    Power(Hundredths),
    /// cwnd − c · ln cwnd (§3.5, table 4).
    Logarithmic(u32),
}

/// How far a slow start goes after a drop (§3.6, table 5, "Exp. limit"), counted from the window before the
/// drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// cwnd − c packets: table 5's "linear − 2".
    Linear(u32),
    /// cwnd^e.
    Power(Hundredths),
}

/// The slow start that follows a drop in the LowPri3 family (§3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regrowth {
    /// Packets by which each acknowledged packet raises the window (table 5, "Slow-start factor").
    pub factor: Hundredths,
    /// Its end.
    pub limit: Limit,
}

/// How a retransmission timeout changes the slow-start threshold. The window is one packet after it in any
/// case (§2, algorithm 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// Half the window, again at each timeout: as the paper's SACK.
    Halve,
    /// The given power of the window, and a timeout before the end of the slow start changes nothing (§4.4:
    /// cuts back less after a timeout, and not again after repeated ones).
    Hold(Hundredths),
}

/// One protocol: constants for the engine [`Filler`](super::Filler).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// The paper's name.
    pub name: &'static str,
    /// The place of its definition in the paper.
    pub place: &'static str,
    /// The reaction to a drop found without a timeout.
    pub decrease: Decrease,
    /// The slow start after it, if any; otherwise the increase is linear at once.
    pub regrowth: Option<Regrowth>,
    /// The reaction to a timeout.
    pub timeout: Timeout,
}

impl Protocol {
    /// LowPri3.6, which the paper found to be the best and renamed (§3.6).
    pub const TCP_BACKGROUND: Protocol = low_pri_3(
        "TCP-Background",
        "§3.6, table 5, last row",
        75,
        50,
        Limit::Power(Hundredths(95)),
    );

    /// The protocol of this name, as the paper spells it.
    pub fn by_name(name: &str) -> Option<&'static Protocol> {
        PROTOCOLS.iter().find(|protocol| protocol.name == name)
    }
}

const fn simple(name: &'static str, place: &'static str, decrease: Decrease) -> Protocol {
    Protocol { name, place, decrease, regrowth: None, timeout: Timeout::Halve }
}

const fn less_power(name: &'static str, place: &'static str, exponent: u32) -> Protocol {
    simple(name, place, Decrease::LessPower(Hundredths(exponent)))
}

const fn multiplicative(name: &'static str, place: &'static str, factor: u32) -> Protocol {
    simple(name, place, Decrease::Multiplicative(Hundredths(factor)))
}

const fn power(name: &'static str, place: &'static str, exponent: u32) -> Protocol {
    simple(name, place, Decrease::Power(Hundredths(exponent)))
}

const fn logarithmic(name: &'static str, place: &'static str, factor: u32) -> Protocol {
    simple(name, place, Decrease::Logarithmic(factor))
}

const fn low_pri_3(
    name: &'static str,
    place: &'static str,
    decrease: u32,
    factor: u32,
    limit: Limit,
) -> Protocol {
    Protocol {
        name,
        place,
        decrease: Decrease::Multiplicative(Hundredths(decrease)),
        regrowth: Some(Regrowth { factor: Hundredths(factor), limit }),
        timeout: Timeout::Halve,
    }
}

/// The paper's protocols in its order. Reno and NewReno have SACK's window (§2, algorithm 1); they differ in
/// retransmission, which is the transport's work.
pub const PROTOCOLS: [Protocol; 26] = [
    multiplicative("SACK", "§2, algorithm 1", 50),
    simple("LowPri1", "§3.1", Decrease::Linear(2)),
    less_power("LowPri2", "§3.2, table 1, row 1", 50),
    less_power("LowPri2.1", "§3.2, table 1, row 2", 33),
    less_power("LowPri2.2", "§3.2, table 1, row 3", 66),
    less_power("LowPri2.3", "§3.2, table 1, row 4", 25),
    less_power("LowPri2.4", "§3.2, table 1, row 5", 40),
    less_power("LowPri2.5", "§3.2, table 1, row 6", 60),
    less_power("LowPri2.6", "§3.2, table 1, row 7", 75),
    multiplicative("LowPri4", "§3.3, table 2, row 1", 66),
    multiplicative("LowPri4.1", "§3.3, table 2, row 2", 75),
    multiplicative("LowPri4.2", "§3.3, table 2, row 3", 25),
    power("LowPri5", "§3.4, table 3, row 1", 90),
    power("LowPri5.1", "§3.4, table 3, row 2", 85),
    power("LowPri5.2", "§3.4, table 3, row 3", 95),
    logarithmic("LowPri6", "§3.5, table 4, row 1", 2),
    logarithmic("LowPri6.1", "§3.5, table 4, row 2", 1),
    logarithmic("LowPri6.2", "§3.5, table 4, row 3", 3),
    low_pri_3("LowPri3", "§3.6, table 5, row 1", 50, 100, Limit::Linear(2)),
    low_pri_3("LowPri3.1", "§3.6, table 5, row 2", 50, 100, Limit::Power(Hundredths(95))),
    low_pri_3("LowPri3.2", "§3.6, table 5, row 3", 50, 100, Limit::Power(Hundredths(90))),
    low_pri_3("LowPri3.3", "§3.6, table 5, row 4", 50, 50, Limit::Power(Hundredths(95))),
    low_pri_3("LowPri3.4", "§3.6, table 5, row 5", 75, 50, Limit::Power(Hundredths(85))),
    low_pri_3("LowPri3.5", "§3.6, table 5, row 6", 75, 50, Limit::Power(Hundredths(90))),
    Protocol::TCP_BACKGROUND,
    // The paper gives no constants; docs/algorithm-filler.md explains these.
    Protocol {
        name: "LowPri3.7",
        place: "§4.4",
        timeout: Timeout::Hold(Hundredths(95)),
        ..Protocol::TCP_BACKGROUND
    },
];
