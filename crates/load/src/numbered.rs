//! Bodies that identify themselves, by a number from their first byte to their last. A body that was cut or
//! put together is detected.

/// The number of unknown bytes.
pub const UNKNOWN_BODY: u64 = u64::MAX;

/// The shortest body that contains its number.
pub(crate) const MIN_BODY_BYTES: usize = 20;

/// The line that fills a body.
fn line_of(number: u64) -> String {
    format!("{number:019}\n")
}

/// The body of a number, of this length.
pub(crate) fn body(number: u64, size: usize) -> Vec<u8> {
    let line = line_of(number);
    let mut bytes = line.repeat(size.div_ceil(line.len())).into_bytes();
    bytes.truncate(size);
    bytes
}

/// The number of an unmodified body: `size` returns the length of a numbered one.
pub(crate) fn number_of(bytes: &[u8], size: impl FnOnce(u64) -> usize) -> Option<u64> {
    let first = bytes.split(|byte| *byte == b'\n').next()?;
    let number = core::str::from_utf8(first).ok()?.parse().ok()?;
    let line = line_of(number);
    let is_whole = bytes.chunks(line.len()).all(|part| line.as_bytes().starts_with(part));
    (is_whole && bytes.len() == size(number)).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_is_checked_byte_by_byte() {
        for (number, size) in [(0, MIN_BODY_BYTES), (1, 21), (9, 1_000), (1_000_003, 20_010)] {
            let bytes = body(number, size);
            let known = |bytes: &[u8]| number_of(bytes, |_| size);
            assert_eq!((bytes.len(), known(&bytes)), (size, Some(number)));
            assert_eq!(known(&bytes[..size - 1]), None);
            assert_eq!(known(&[&bytes[..], b"0"].concat()), None);
            // A single line is that of another number.
            for at in [0, size / 2, size - 1].into_iter().filter(|_| size >= 2 * MIN_BODY_BYTES) {
                let mut other = bytes.clone();
                other[at] ^= 1;
                assert_eq!(known(&other), None, "{number}, byte {at}");
            }
        }
        assert_eq!(number_of(b"", |_| 0), None);
        assert_eq!(number_of(b"+000000000000000005\n", |_| MIN_BODY_BYTES), None);
    }
}
