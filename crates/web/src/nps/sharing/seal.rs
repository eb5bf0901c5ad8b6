//! Messages between proxies of a site are encrypted: the operator of the NATS server can neither read nor forge one.

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use sha2::{Digest, Sha256};

/// The purpose of the key file's key. Another version of the messages has another key.
const ENCRYPTION: &[u8] = b"lull web share, messages, 1";

/// Why a message is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it was encrypted with another key, or by another version")]
pub(in crate::nps) struct Unreadable;

/// Encrypts and decrypts, with the key that all proxies of a site have: ChaCha20-Poly1305 (RFC 8439).
pub(in crate::nps) struct Sealer {
    key: LessSafeKey,
    random: SystemRandom,
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealer")
    }
}

impl Sealer {
    /// With the contents of the key file. None if the library has no such cipher.
    pub(in crate::nps) fn new(key: &[u8; 16]) -> Option<Self> {
        let key = Sha256::new().chain_update(ENCRYPTION).chain_update(key).finalize();
        let key = UnboundKey::new(&CHACHA20_POLY1305, &key).ok()?;
        Some(Sealer { key: LessSafeKey::new(key), random: SystemRandom::new() })
    }

    /// Encrypts a message for a subject. None if the system gives no random numbers.
    pub(in crate::nps) fn seal(&self, subject: &str, mut message: Vec<u8>) -> Option<Vec<u8>> {
        // 96 random bits repeat after 2^48 messages on average.
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).ok()?;
        let unique = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(unique, Aad::from(subject), &mut message).ok()?;
        Some([&nonce[..], &message].concat())
    }

    /// Decrypts a message from a subject.
    ///
    /// # Errors
    /// If it was not made with this key, for this subject.
    pub(in crate::nps) fn open(&self, subject: &str, sealed: &[u8]) -> Result<Vec<u8>, Unreadable> {
        let (nonce, rest) = sealed.split_first_chunk::<NONCE_LEN>().ok_or(Unreadable)?;
        let mut message = rest.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self.key.open_in_place(nonce, Aad::from(subject), &mut message);
        let length = opened.map_err(|_| Unreadable)?.len();
        message.truncate(length);
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_opens_with_its_key_and_subject_only() {
        let (one, other) = (Sealer::new(&[1; 16]).unwrap(), Sealer::new(&[2; 16]).unwrap());
        let sealed = one.seal("a", b"/reset-password/1f3c".to_vec()).unwrap();
        assert!(!sealed.windows(6).any(|part| part == b"/reset"));
        assert_ne!(one.seal("a", b"/reset-password/1f3c".to_vec()).unwrap(), sealed);
        assert_eq!(one.open("a", &sealed).unwrap(), b"/reset-password/1f3c");
        assert_eq!(other.open("a", &sealed), Err(Unreadable));
        assert_eq!(one.open("b", &sealed), Err(Unreadable));
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(one.open("a", &changed), Err(Unreadable), "byte {at}");
            assert_eq!(one.open("a", &sealed[..at]), Err(Unreadable), "cut at {at}");
        }
    }
}
