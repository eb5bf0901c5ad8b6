//! Bounds of measured quantities.

use std::env;

/// Chooses the bound of a measured quantity: `busy`, which holds however busy the machine is, or `quiet`, which
/// needs a machine that does nothing else.
///
/// Measured times depend on what else runs. `make test` checks order and correctness only, so that it passes
/// beside any load. `make test-full` sets `LULL_QUIET_MACHINE` and checks the accuracy too.
pub fn bound<T>(busy: T, quiet: T) -> T {
    if env::var_os("LULL_QUIET_MACHINE").is_some() { quiet } else { busy }
}
