//! Encryption of an origin's identity, where others may read it: ChaCha20-Poly1305 (RFC 8439).

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use super::{IdentityError, random};

fn cipher(key: &[u8; 32]) -> Result<LessSafeKey, IdentityError> {
    let key = UnboundKey::new(&CHACHA20_POLY1305, key).map_err(|_| IdentityError::Sealed)?;
    Ok(LessSafeKey::new(key))
}

/// Encrypts bytes. The nonce is random: an identity changes some thousand times in its life.
pub(super) fn seal(key: &[u8; 32], bytes: &[u8]) -> Result<Vec<u8>, IdentityError> {
    let mut nonce = [0; NONCE_LEN];
    nonce.copy_from_slice(&random()?[..NONCE_LEN]);
    let mut sealed = bytes.to_vec();
    cipher(key)?
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut sealed)
        .map_err(|_| IdentityError::Sealed)?;
    sealed.extend(nonce);
    Ok(sealed)
}

/// The bytes that were encrypted with this key.
pub(super) fn open(key: &[u8; 32], sealed: &[u8]) -> Result<Vec<u8>, IdentityError> {
    let (sealed, nonce) = sealed.split_last_chunk::<NONCE_LEN>().ok_or(IdentityError::Sealed)?;
    let mut bytes = sealed.to_vec();
    let opened = cipher(key)?
        .open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::empty(), &mut bytes)
        .map_err(|_| IdentityError::Sealed)?
        .len();
    bytes.truncate(opened);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_identity_opens_with_its_key_only() {
        let (key, other) = ([1; 32], [2; 32]);
        let sealed = seal(&key, b"secret").unwrap();
        assert!(!sealed.windows(6).any(|six| six == b"secret"));
        assert_eq!(open(&key, &sealed).unwrap(), b"secret");
        assert!(open(&other, &sealed).is_err());
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(open(&key, &changed).is_err());
        }
        assert!(open(&key, b"short").is_err());
    }
}
