//! Names of congestion controls that Lull can load.

/// TCP_CA_NAME_MAX of the kernel without the final zero.
pub(crate) const LONGEST: usize = 15;

/// Whether the kernel accepts this name for a loaded congestion control.
pub(crate) fn is_valid(name: &str) -> bool {
    // The kernel permits no hyphen (bpf_obj_name_cpy).
    let is_good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    (1..=LONGEST).contains(&name.len()) && name.chars().all(is_good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules_of_the_kernel() {
        for name in ["nice", "nice_2", "a", "abcdefghijklmno"] {
            assert!(is_valid(name), "{name}");
        }
        for name in ["", "abcdefghijklmnop", "Nice", "a b", "a.b", "a-b", "../x", "é"] {
            assert!(!is_valid(name), "{name}");
        }
    }
}
