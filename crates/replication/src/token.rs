//! Session tokens: a client that changes replicas carries one, so that it never sees an older state than
//! before. SSR §6.1 and §6.2.3.3 leave it to future work; the idea is Bayou's session guarantees.
//!
//! A token is the highest position that the session has seen, with a MAC: a forged one could make replicas
//! wait for commits that never come. It contains nothing else, and suits an HTTP header or a cookie.

use core::fmt;

use thiserror::Error;

use crate::types::Sequence;

/// A key of all replicas of one origin. The origin generates and distributes it.
#[derive(Clone)]
pub struct TokenKey([u8; 32]);

impl TokenKey {
    /// The key with these random bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        TokenKey(bytes)
    }

    fn mac(&self, sequence: Sequence) -> blake3::Hash {
        let mut message = [0; 32];
        message[..24].copy_from_slice(b"lull session token 1\0\0\0\0");
        message[24..].copy_from_slice(&sequence.0.to_be_bytes());
        blake3::keyed_hash(&self.0, &message)
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey(…)")
    }
}

/// Why a token is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TokenError {
    /// The text is not a token.
    #[error("this origin did not issue the session token: start a session without it")]
    Malformed,
    /// No known key made it.
    #[error("the session token was made with another key: start a session without it")]
    Forged,
}

/// The keys that a replica accepts: tokens are made with the first. During a rotation the second is first the
/// next key, until all replicas know it. Then it is the previous key. It stays until all have begun with the
/// next one and show every state that a token of the previous one may name. So no session goes back because
/// its token is not accepted.
#[derive(Clone, Debug)]
pub struct Keyring {
    current: TokenKey,
    other: Option<TokenKey>,
}

const SEQUENCE_DIGITS: usize = 16;
const MAC_DIGITS: usize = 64;

impl Keyring {
    /// A ring of the current key and, during a replacement, another one.
    pub const fn new(current: TokenKey, other: Option<TokenKey>) -> Self {
        Keyring { current, other }
    }

    /// The token of a session that has seen `sequence`.
    pub fn issue(&self, sequence: Sequence) -> String {
        format!("{:016x}{}", sequence.0, self.current.mac(sequence).to_hex())
    }

    /// Whether an accepted token is made with the current key: another key may be dropped at any time.
    pub fn is_current(&self, token: &str) -> bool {
        self.verify(token).is_ok_and(|sequence| self.issue(sequence) == token)
    }

    /// The position that the bearer of `token` has seen.
    ///
    /// # Errors
    /// If it is malformed, or made with an unknown key.
    pub fn verify(&self, token: &str) -> Result<Sequence, TokenError> {
        let digits =
            |text: &str| text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if token.len() != SEQUENCE_DIGITS + MAC_DIGITS || !digits(token) {
            return Err(TokenError::Malformed);
        }
        let (sequence, mac) = token.split_at(SEQUENCE_DIGITS);
        let sequence =
            Sequence(u64::from_str_radix(sequence, 16).map_err(|_| TokenError::Malformed)?);
        let mac = blake3::Hash::from_hex(mac).map_err(|_| TokenError::Malformed)?;
        let mut keys = core::iter::once(&self.current).chain(&self.other);
        // Hashes of BLAKE3 are compared in constant time.
        if keys.any(|key| key.mac(sequence) == mac) {
            Ok(sequence)
        } else {
            Err(TokenError::Forged)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(current: u8, other: Option<u8>) -> Keyring {
        Keyring::new(TokenKey::new([current; 32]), other.map(|byte| TokenKey::new([byte; 32])))
    }

    #[test]
    fn token_yields_its_position() {
        for sequence in [Sequence::ZERO, Sequence(7), Sequence(u64::MAX)] {
            let token = ring(1, None).issue(sequence);
            assert_eq!(ring(1, None).verify(&token), Ok(sequence));
            assert_eq!(ring(2, Some(1)).verify(&token), Ok(sequence), "while keys change");
            assert_eq!(ring(2, None).verify(&token), Err(TokenError::Forged));
            let rings = [ring(1, None), ring(1, Some(2)), ring(2, Some(1)), ring(2, None)];
            assert_eq!(rings.map(|ring| ring.is_current(&token)), [true, true, false, false]);
        }
    }

    #[test]
    fn token_with_a_changed_digit_is_rejected() {
        let ring = ring(1, None);
        let token = ring.issue(Sequence(41));
        for at in 0..token.len() {
            let mut digits = token.clone().into_bytes();
            digits[at] = if digits[at] == b'0' { b'1' } else { b'0' };
            let forged = String::from_utf8(digits).expect("digits are text");
            assert_eq!(ring.verify(&forged), Err(TokenError::Forged), "digit {at}");
        }
        for other in ["", "7", &token[1..], &token.to_uppercase(), &"ü".repeat(40)] {
            assert_eq!(ring.verify(other), Err(TokenError::Malformed), "{other}");
        }
    }

    #[test]
    fn key_is_not_printed() {
        assert_eq!(format!("{:?}", TokenKey::new([7; 32])), "TokenKey(…)");
    }
}
