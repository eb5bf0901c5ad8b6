//! Reads the background of this machine, with the rights that there are.

use crate::error::Result;
use crate::snapshot::{Snapshot, read_all, read_jobs};
use crate::{machine, serve};

/// Reads the background of this machine, as far as this user may.
///
/// # Errors
/// If the cgroups or the kernel's tables cannot be read, or the server refuses.
pub fn read_background() -> Result<Snapshot> {
    if machine::check_privilege("reading the background").is_ok() {
        return read_all();
    }
    serve::ask_for_snapshot()?.map_or_else(read_jobs, Ok)
}
