//! Memory, counted.

/// Bytes of this many values.
pub(crate) const fn bytes_of<T>(count: usize) -> u64 {
    (count * size_of::<T>()) as u64
}
