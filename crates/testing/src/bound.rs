//! Bounds of measured quantities.

use std::env;

/// Chooses the bound of a measured quantity: `busy`, which holds on a busy machine, or `quiet`, which needs
/// an idle one.
///
/// Measured times depend on other activity. `make test` checks order and correctness only, so that it passes
/// beside any load. `make test-full` sets `LULL_QUIET_MACHINE` and checks the accuracy too.
pub fn bound<T>(busy: T, quiet: T) -> T {
    if env::var_os("LULL_QUIET_MACHINE").is_some() { quiet } else { busy }
}
