//! Messages to the kernel, by the device of a mount.

use std::fs::File as Device;
use std::io::{self, IoSlice, Write};

use nix::errno::Errno;

use super::abi;

/// Writes an answer.
///
/// # Errors
/// If its requester has gone, or nothing is mounted.
pub(super) fn answer(
    mut device: &Device,
    unique: u64,
    answer: Result<&[u8], Errno>,
) -> io::Result<()> {
    let (error, body) = answer.map_or_else(|error| (error as i32, &[][..]), |body| (0, body));
    let head = abi::head(unique, error, body.len());
    device.write_vectored(&[IoSlice::new(&head), IoSlice::new(body)]).map(drop)
}

/// Makes the kernel look up all names again.
///
/// # Errors
/// If the kernel knows no such notification, or nothing is mounted.
pub(super) fn forget_names(mut device: &Device) -> io::Result<()> {
    device.write(&abi::forget_names()).map(drop)
}
