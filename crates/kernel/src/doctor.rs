//! Examines whether this machine can run programs in the background, and other requirements.

use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use lull_cc::NiceParameters;
use nix::unistd::{Gid, Group, Uid, User};
use serde::Serialize;

use crate::cgroup::Hierarchy;
use crate::constants::{Constants, PathTable};
use crate::control::Control;
use crate::error::Error;
use crate::machine;
use crate::mounts::Bpffs;
use crate::serve::{Access, access};

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The thing.
    pub check: &'static str,
    /// Whether it meets Lull's requirement.
    pub level: Level,
    /// The observed state.
    pub found: String,
    /// The remedy.
    pub remedy: Option<String>,
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// No problem.
    Ok,
    /// Lull runs, but with restrictions.
    Warning,
    /// `lull exec` does not run.
    Problem,
}

impl Finding {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Finding { check, level: Level::Ok, found: found.into(), remedy: None }
    }

    fn bad(
        check: &'static str,
        level: Level,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Finding { check, level, found: found.into(), remedy: Some(remedy.into()) }
    }

    /// An error of this crate has the problem and the remedy in its message.
    fn of(check: &'static str, error: &Error) -> Self {
        let text = error.to_string();
        match text.split_once(": ") {
            Some((found, remedy)) => Finding::bad(check, Level::Problem, found, remedy),
            None => Finding::bad(check, Level::Problem, text, "see 'lull exec --help'"),
        }
    }
}

/// Examines this machine. Nothing is changed.
pub fn examine() -> Vec<Finding> {
    let privilege = machine::check_privilege("lull exec");
    let mut findings = vec![kernel(), type_information(), jit()];
    let access = access();
    findings.push(privileges(&privilege, &access));
    findings.push(lockdown());
    findings.push(cgroups());
    findings.push(bpf_file_system(privilege.is_ok()));
    findings.push(match (&privilege, &access) {
        (Err(_), Access::Granted(_)) => served_program(),
        _ => program(privilege.is_ok()),
    });
    findings.extend(shared_window(privilege.is_ok()));
    findings.push(congestion_control());
    let device = default_device();
    findings.extend(device.as_deref().map(queue));
    findings.extend(device.as_deref().map(mtu));
    findings
}

/// Whether this process may run programs in the background: by its own rights, or by a server.
pub fn may_exec() -> bool {
    machine::check_privilege("lull exec").is_ok() || matches!(access(), Access::Granted(_))
}

fn setting(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn kernel() -> Finding {
    let release = setting("/proc/sys/kernel/osrelease").unwrap_or_default();
    match machine::check_version() {
        Ok(()) => Finding::ok("kernel", format!("Linux {release}")),
        Err(_) => Finding::bad(
            "kernel",
            Level::Problem,
            format!("Linux {release}"),
            "install Linux 6.4 or later: Debian 13 and Ubuntu 24.04 have it, Debian 12 in its backports",
        ),
    }
}

fn type_information() -> Finding {
    match machine::check_btf() {
        Ok(()) => Finding::ok("type information", "BTF in /sys/kernel/btf/vmlinux"),
        Err(error) => Finding::of("type information", &error),
    }
}

/// Operations of a congestion control are only called from compiled programs (bpf_struct_ops).
fn jit() -> Finding {
    const CHECK: &str = "BPF compiler";
    match setting("/proc/sys/net/core/bpf_jit_enable").as_deref() {
        Some("0") => Finding::bad(
            CHECK,
            Level::Problem,
            "off",
            "switch it on: sysctl -w net.core.bpf_jit_enable=1",
        ),
        // Only root of the first network namespace may read it.
        _ => Finding::ok(CHECK, "not switched off"),
    }
}

fn lockdown() -> Finding {
    let text = setting("/sys/kernel/security/lockdown").unwrap_or_default();
    let mode = text.split(['[', ']']).nth(1).unwrap_or("none");
    if mode == "confidentiality" {
        let remedy =
            "boot with lockdown=integrity or without it: BPF may not read the kernel's memory";
        return Finding::bad("lockdown", Level::Problem, mode, remedy);
    }
    Finding::ok("lockdown", mode)
}

fn cgroups() -> Finding {
    const CHECK: &str = "cgroup v2";
    match Hierarchy::open() {
        Ok(hierarchy) if hierarchy.sees_all() => {
            Finding::ok(CHECK, "the whole hierarchy is visible")
        }
        Ok(_) => Finding::bad(
            CHECK,
            Level::Warning,
            "a part of the hierarchy is visible, as in a container",
            "run lull outside of the container to unload congestion controls that no program uses",
        ),
        Err(error) => Finding::of(CHECK, &error),
    }
}

fn bpf_file_system(is_privileged: bool) -> Finding {
    const CHECK: &str = "BPF file system";
    match Bpffs::find() {
        Ok(Some(_)) => Finding::ok(CHECK, "mounted"),
        Ok(None) if Path::new("/sys/fs/bpf").is_dir() => {
            Finding::ok(CHECK, "not mounted; lull mounts it when it needs it")
        }
        Ok(None) => Finding::bad(
            CHECK,
            Level::Problem,
            "not mounted, and /sys/fs/bpf is missing",
            "mount /sys first: mount -t sysfs sysfs /sys",
        ),
        Err(_) if !is_privileged => Finding::ok(CHECK, "mounted, for root"),
        Err(error) => Finding::of(CHECK, &error),
    }
}

/// The rights of this process, or those of a server that it may use.
fn privileges(own: &crate::error::Result<()>, access: &Access) -> Finding {
    const CHECK: &str = "privilege";
    match (own, access) {
        (Ok(()), _) => Finding::ok(CHECK, "all capabilities that are needed"),
        (Err(_), Access::Granted(socket)) => {
            let found = format!("none needed: 'lull kernel serve' at {} has it", socket.display());
            Finding::ok(CHECK, found)
        }
        (Err(_), Access::Denied(socket)) => Finding::bad(
            CHECK,
            Level::Problem,
            format!("'lull kernel serve' at {} does not accept this user", socket.display()),
            denied_remedy(socket),
        ),
        (Err(error), Access::NoServer) if Path::new(SERVER_UNIT).exists() => {
            let remedy = "run it as root, or let members of the group lull use it: sudo systemctl enable \
                --now lull-serve.socket";
            Finding { remedy: Some(remedy.to_owned()), ..Finding::of(CHECK, error) }
        }
        (Err(error), Access::NoServer) => Finding::of(CHECK, error),
    }
}

/// The unit that the package installs.
const SERVER_UNIT: &str = "/usr/lib/systemd/system/lull-serve.socket";

/// How a user gets into the group of a socket. A membership begins with the next login.
fn denied_remedy(socket: &Path) -> String {
    let gid = fs::metadata(socket).map(|metadata| Gid::from_raw(metadata.gid()));
    let group = gid.ok().and_then(|gid| Group::from_gid(gid).ok().flatten());
    let name = User::from_uid(Uid::effective()).ok().flatten().map(|user| user.name);
    let Some(group) = group else { return "run it as root".to_owned() };
    if name.as_ref().is_some_and(|name| group.mem.contains(name)) {
        return format!("log in again: the membership in group {} begins then", group.name);
    }
    let name = name.unwrap_or_else(|| "USER".to_owned());
    format!("sudo usermod -aG {} {name}, then log in again", group.name)
}

/// For members of the group of a server, which loads the congestion control.
fn served_program() -> Finding {
    Finding::ok("Lull", "'lull kernel serve' loads it; 'sudo lull doctor' tries it")
}

/// Whether the kernel accepts TCP Nice. It is loaded and not registered.
fn program(is_privileged: bool) -> Finding {
    const CHECK: &str = "TCP Nice";
    if !is_privileged {
        let remedy = "run 'sudo lull doctor'";
        return Finding::bad(CHECK, Level::Warning, "not tried without privilege", remedy);
    }
    if machine::check_kernel().is_err() {
        return Finding::bad(CHECK, Level::Problem, "not tried", "solve the problems above first");
    }
    let mut storage = MaybeUninit::uninit();
    let constants = Constants::Nice(NiceParameters::refined());
    match Control::load(&mut storage, "nice", false, &constants) {
        Ok(_) => Finding::ok(CHECK, "the kernel loads it"),
        Err(error) => Finding::of(CHECK, &error),
    }
}

/// Whether the kernel accepts Lull. It is loaded and not registered.
fn shared_window(is_privileged: bool) -> Option<Finding> {
    const CHECK: &str = "Lull";
    if !is_privileged || machine::check_kernel().is_err() {
        return None;
    }
    let mut storage = MaybeUninit::uninit();
    let constants = Constants::Lull(PathTable::default());
    Some(match Control::load(&mut storage, "lull", false, &constants) {
        Ok(_) => Finding::ok(CHECK, "the kernel loads it"),
        Err(error) => {
            let remedy = "'lull exec' uses TCP Nice instead; a newer kernel may have Lull";
            Finding::bad(CHECK, Level::Warning, error.to_string(), remedy)
        }
    })
}

fn congestion_control() -> Finding {
    const CHECK: &str = "default congestion control";
    let name = setting("/proc/sys/net/ipv4/tcp_congestion_control").unwrap_or_default();
    match name.as_str() {
        "nice" | "lull" | "background" | "lull_vegas" => Finding::bad(
            CHECK,
            Level::Warning,
            format!("{name}: every program of this machine sends in the background"),
            "set another one: sysctl -w net.ipv4.tcp_congestion_control=cubic",
        ),
        _ => Finding::ok(CHECK, name),
    }
}

/// The network device of the default route with the lowest metric.
fn default_device() -> Option<String> {
    device_in(&fs::read_to_string("/proc/net/route").ok()?)
}

fn device_in(routes: &str) -> Option<String> {
    let defaults = routes.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_default = fields.get(1) == Some(&"00000000") && fields.get(7) == Some(&"00000000");
        let metric: u32 = fields.get(6)?.parse().ok()?;
        is_default.then(|| (metric, fields[0].to_owned()))
    });
    defaults.min_by_key(|&(metric, _)| metric).map(|(_, device)| device)
}

/// The queue discipline of the default route's device, as reported by tc(8).
fn queue(device: &str) -> Finding {
    let output = Command::new("tc").args(["qdisc", "show", "dev", device]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    queue_with(device, &qdiscs_in(&text.unwrap_or_default()))
}

fn queue_with(device: &str, names: &[String]) -> Finding {
    const CHECK: &str = "queue discipline";
    if names.is_empty() {
        return Finding::ok(CHECK, format!("{device}: not known, since tc is not installed"));
    }
    let found = format!("{device}: {}", names.join(", "));
    let shares = |name: &String| ["fq_codel", "cake"].contains(&name.as_str());
    if names.iter().any(shares) {
        let remedy = "if this link is the slowest, the background gets an equal share of it: use cake \
            with 'diffserv4', which serves the DSCP of lower effort last";
        return Finding::bad(CHECK, Level::Warning, found, remedy);
    }
    Finding::ok(CHECK, found)
}

fn qdiscs_in(text: &str) -> Vec<String> {
    let mut names: Vec<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("qdisc ")?.split(' ').next())
        .map(str::to_owned)
        .collect();
    names.dedup();
    names
}

fn mtu(device: &str) -> Finding {
    /// RFC 8200, section 5.
    const MIN_OF_IPV6: u32 = 1280;
    let path = format!("/sys/class/net/{device}/mtu");
    let mtu = setting(&path).and_then(|text| text.parse::<u32>().ok());
    match mtu {
        Some(mtu) if mtu < MIN_OF_IPV6 => Finding::bad(
            "MTU",
            Level::Warning,
            format!("{device}: {mtu} bytes"),
            format!("IPv6 needs {MIN_OF_IPV6}: ip link set {device} mtu {MIN_OF_IPV6}"),
        ),
        Some(mtu) => Finding::ok("MTU", format!("{device}: {mtu} bytes")),
        None => Finding::ok("MTU", format!("{device}: not known")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_device_has_the_lowest_metric() {
        let routes = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n\
            wlan0 00000000 0101A8C0 0003 0 0 600 00000000 0 0 0\n\
            eth0 00000000 0101A8C0 0003 0 0 100 00000000 0 0 0\n\
            tun0 0000000A 00000000 0001 0 0 0 000000FF 0 0 0\n";
        assert_eq!(device_in(routes).as_deref(), Some("eth0"));
        assert_eq!(device_in("Iface\n"), None);
    }

    #[test]
    fn queue_disciplines_are_read_from_tc() {
        let text = "qdisc mq 0: root\nqdisc fq_codel 0: parent :1 limit 10240p\n\
            qdisc fq_codel 0: parent :2 limit 10240p\n";
        assert_eq!(qdiscs_in(text), ["mq", "fq_codel"]);
        assert_eq!(qdiscs_in(""), Vec::<String>::new());
        assert_eq!(queue_with("eth0", &qdiscs_in(text)).level, Level::Warning);
        assert_eq!(queue_with("eth0", &["fq".to_owned()]).level, Level::Ok);
    }

    #[test]
    fn error_becomes_finding_with_remedy() {
        let finding = Finding::of("x", &Error::NoBtf);
        assert_eq!(finding.found, "/sys/kernel/btf/vmlinux is missing");
        assert!(finding.remedy.unwrap().starts_with("use a kernel built with"));
    }
}
