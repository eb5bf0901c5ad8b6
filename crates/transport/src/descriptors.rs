//! How many connections a process may have: each needs a descriptor.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The default limit of a process.
const USUAL: u64 = 1024;

/// How many descriptors this process may have open.
pub fn descriptors() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(USUAL, |(soft, _)| soft)
}

/// Raises that as far as this process may, and returns it. Most systems give a program few descriptors, for
/// the sake of programs that use `select`, and let others request more.
pub fn raise_descriptors() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return USUAL };
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_limit_is_raised_as_far_as_allowed() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("Linux tells");
        assert_eq!(raise_descriptors(), hard);
        assert_eq!((descriptors(), raise_descriptors()), (hard, hard));
    }
}
