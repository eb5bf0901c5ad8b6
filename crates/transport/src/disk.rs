//! Disk reads and writes that yield to other programs.

use std::io;

use crate::sys;

/// Gives the calling thread the lowest best-effort I/O priority (`ioprio_set(2)`), or restores its usual one.
/// The lowest one is still served, unlike the idle class. It has an effect if the disk's scheduler supports
/// priorities: `bfq`, and `mq-deadline` in part.
///
/// # Errors
/// The errors of the system call.
pub fn set_low_disk_priority(is_low: bool) -> io::Result<()> {
    sys::set_io_priority(if is_low { BEST_EFFORT << CLASS_SHIFT | LOWEST } else { NONE })
}

/// Of `linux/ioprio.h`.
const CLASS_SHIFT: u32 = 13;
const BEST_EFFORT: u32 = 2;
const LOWEST: u32 = 7;
/// The priority follows from the thread's niceness.
const NONE: u32 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_priority_is_lowered_and_restored() {
        let usual = sys::io_priority().expect("a priority");
        set_low_disk_priority(true).expect("it needs no privilege");
        assert_eq!(sys::io_priority().expect("a priority"), 0x4007);
        set_low_disk_priority(false).expect("it needs no privilege");
        assert_eq!(sys::io_priority().expect("a priority"), usual);
    }
}
