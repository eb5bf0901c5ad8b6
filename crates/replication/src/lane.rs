//! Lanes: demanded bodies by their length, so that none waits for much longer ones.

use lull_cc::Bytes;

use crate::message::BodyHeader;
use crate::types::PIECE;

/// One of the lanes that bodies take on the demand channel. The bodies of one lane come one after the other,
/// and all lanes take turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(u8);

impl Lane {
    /// How many there are.
    pub const COUNT: usize = 4;
    /// All of them, that of the shortest bodies first.
    pub const ALL: [Lane; Lane::COUNT] = [Lane(0), Lane(1), Lane(2), Lane(3)];

    /// The lane of this number, if there is one.
    pub(crate) fn new(number: u8) -> Option<Self> {
        (usize::from(number) < Lane::COUNT).then_some(Lane(number))
    }

    /// Its number, from zero.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The same, for arrays with one entry per lane.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The lane of a body by its size: up to one piece for the first lane, 64 times as much for each following
/// one, and anything longer for the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lanes {
    piece: Bytes,
}

impl Default for Lanes {
    fn default() -> Self {
        Lanes::of_pieces(Bytes(PIECE as u64))
    }
}

impl Lanes {
    /// From lane to lane.
    const TIMES: u64 = 64;

    /// For pieces of another size than the protocol's: so short bodies can be tested as if they were long.
    pub const fn of_pieces(piece: Bytes) -> Self {
        Lanes { piece }
    }

    /// The longest body that is sent at once.
    pub const fn piece(self) -> Bytes {
        self.piece
    }

    /// The lane of a body of that size.
    pub fn lane_for(self, size: Bytes) -> Lane {
        let mut most = self.piece.0;
        for lane in &Lane::ALL[..Lane::COUNT - 1] {
            if size.0 <= most {
                return *lane;
            }
            most = most.saturating_mul(Lanes::TIMES);
        }
        Lane::ALL[Lane::COUNT - 1]
    }

    /// The lane of the body after a header, or of the header alone if there is no body.
    pub fn of_body(self, header: &BodyHeader) -> Lane {
        let version = header.version.filter(|_| !header.lost);
        self.lane_for(version.map_or(Bytes(0), |version| version.content.size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::MAX_BODY_BYTES;

    #[test]
    fn body_never_shares_the_lane_of_much_longer_ones() {
        let lanes = Lanes::default();
        for (size, expected) in [
            (0, 0),
            (65_536, 0),
            (65_537, 1),
            (4 << 20, 1),
            ((4 << 20) + 1, 2),
            (256 << 20, 2),
            ((256 << 20) + 1, 3),
            (MAX_BODY_BYTES.0, 3),
            (u64::MAX, 3),
        ] {
            assert_eq!(lanes.lane_for(Bytes(size)).number(), expected, "{size}");
        }
        assert_eq!(Lanes::of_pieces(Bytes(10)).lane_for(Bytes(641)).number(), 2);
        assert_eq!(Lanes::of_pieces(Bytes(u64::MAX)).lane_for(Bytes(u64::MAX)).number(), 0);
    }
}
