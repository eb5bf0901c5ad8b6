//! The capabilities of this machine. Each probe returns `Ok` or a short text of what is missing.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::{env, fmt, fs};

/// A requirement of a test that this machine does not meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing(String);

impl Missing {
    /// A missing requirement, in a few words: "no /dev/net/tun".
    pub fn new(what: impl Into<String>) -> Self {
        Missing(what.into())
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// `CAP_NET_ADMIN` of capabilities(7).
const CAP_NET_ADMIN: u32 = 12;
/// `CAP_SYS_ADMIN` of capabilities(7).
const CAP_SYS_ADMIN: u32 = 21;
/// The first kernel with BPF links that hold a struct_ops.
const FIRST_KERNEL_WITH_STRUCT_OPS_LINKS: (u32, u32) = (6, 4);

/// Root in the machine's own user namespace, with the privileges to make namespaces, mounts, cgroups and
/// network devices. A container's root often lacks them.
pub fn root() -> Result<(), Missing> {
    let status = read("/proc/self/status")?;
    let effective = effective_capabilities(&status)
        .ok_or_else(|| Missing::new("no CapEff in /proc/self/status"))?;
    for (bit, name) in [(CAP_SYS_ADMIN, "CAP_SYS_ADMIN"), (CAP_NET_ADMIN, "CAP_NET_ADMIN")] {
        if effective & (1 << bit) == 0 {
            return Err(Missing(format!("not root: no {name}")));
        }
    }
    if !is_initial_user_namespace(&read("/proc/self/uid_map")?) {
        return Err(Missing::new("not root: inside a user namespace"));
    }
    Ok(())
}

/// The privilege and the kernel to register a congestion control by BPF: root, type information of the
/// running kernel (BTF), and Linux 6.4.
///
/// Requirements that it cannot check beforehand, such as a kernel without `CONFIG_BPF_JIT`, fail the test
/// instead of skipping it.
pub fn bpf() -> Result<(), Missing> {
    root()?;
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(Missing::new("no BTF: /sys/kernel/btf/vmlinux is not there"));
    }
    let release = read("/proc/sys/kernel/osrelease")?;
    let (major, minor) = FIRST_KERNEL_WITH_STRUCT_OPS_LINKS;
    if kernel_version(&release).is_none_or(|version| version < (major, minor)) {
        return Err(Missing(format!("Linux {} is older than {major}.{minor}", release.trim())));
    }
    Ok(())
}

/// The privilege to mount a file system, and a kernel with FUSE.
pub fn fuse() -> Result<(), Missing> {
    root()?;
    match fs::OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        Ok(_) => Ok(()),
        Err(error) => Err(Missing(format!("no FUSE: /dev/fuse: {error}"))),
    }
}

/// The privilege to make a user, a network and a mount namespace without being root. Tried once, with
/// `unshare` of util-linux.
pub fn user_namespaces() -> Result<(), Missing> {
    static TRIED: OnceLock<Result<(), Missing>> = OnceLock::new();
    TRIED
        .get_or_init(|| {
            command("unshare")?;
            let output = Command::new("unshare")
                .args(["--user", "--map-root-user", "--net", "--mount", "true"])
                .stdin(Stdio::null())
                .output()
                .map_err(|error| Missing(format!("unshare: {error}")))?;
            if output.status.success() {
                Ok(())
            } else {
                let said = String::from_utf8_lossy(&output.stderr);
                Err(Missing(format!("no user namespaces: {}", said.trim())))
            }
        })
        .clone()
}

/// The program `name` on the `PATH`.
pub fn command(name: &str) -> Result<(), Missing> {
    let path = env::var_os("PATH").unwrap_or_default();
    if env::split_paths(&path).any(|folder| folder.join(name).is_file()) {
        Ok(())
    } else {
        Err(Missing(format!("no {name} on the PATH")))
    }
}

fn read(path: &str) -> Result<String, Missing> {
    fs::read_to_string(path).map_err(|error| Missing(format!("{path}: {error}")))
}

/// The `CapEff` line of /proc/PID/status (proc(5)).
fn effective_capabilities(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Only the initial user namespace maps every id to itself (user_namespaces(7)).
fn is_initial_user_namespace(uid_map: &str) -> bool {
    uid_map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Major and minor of a release such as `6.18.5-cloud-amd64`.
fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.trim().split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_status() {
        let status = "Name:\tcargo\nCapPrm:\t0000000000000000\nCapEff:\t0000000000201000\n";
        assert_eq!(effective_capabilities(status), Some(1 << CAP_SYS_ADMIN | 1 << CAP_NET_ADMIN));
        assert_eq!(effective_capabilities("Name:\tcargo\n"), None);
    }

    #[test]
    fn only_the_full_map_is_the_initial_namespace() {
        assert!(is_initial_user_namespace("         0          0 4294967295\n"));
        assert!(!is_initial_user_namespace("         0       1000          1\n"));
        assert!(!is_initial_user_namespace("0 100000 65536\n"));
    }

    #[test]
    fn kernels_are_ordered_by_major_and_minor() {
        assert_eq!(kernel_version("6.18.5-cloud-amd64\n"), Some((6, 18)));
        assert_eq!(kernel_version("5.15.0"), Some((5, 15)));
        assert_eq!(kernel_version("rolling"), None);
        assert!(kernel_version("5.15.0") < Some(FIRST_KERNEL_WITH_STRUCT_OPS_LINKS));
    }

    #[test]
    fn program_is_found_or_named() {
        assert_eq!(command("sh"), Ok(()));
        let missing = command("lull-no-such-program").unwrap_err();
        assert_eq!(missing.to_string(), "no lull-no-such-program on the PATH");
    }
}
