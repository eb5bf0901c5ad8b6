//! The features of this kernel and the permissions of this process.

use std::fs;
use std::path::Path;

use libbpf_rs::btf::types::{FuncProto, Ptr, Struct};
use libbpf_rs::btf::{Btf, BtfType, ReferencesType, TypeId};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, getsockopt, socket, sockopt};
use std::os::fd::AsFd;

use crate::error::{Error, Result};
use crate::{names, sys};

/// Linux 6.4 has links for struct_ops, which can be pinned.
const OLDEST_KERNEL: (u32, u32) = (6, 4);

/// The file with the registered congestion controls.
const REGISTERED: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Checks the capabilities required for loading and attaching BPF programs.
///
/// # Errors
/// [`Error::Permission`] names those that are missing; `what` begins its message.
pub fn check_privilege(what: &str) -> Result<()> {
    // libbpf would print details on standard error; our message is one line.
    libbpf_rs::set_print(None);
    let status =
        fs::read_to_string("/proc/self/status").map_err(Error::io("read /proc/self/status"))?;
    let missing = missing_capabilities(&status);
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::permission(what, missing.join(", "), false))
}

fn missing_capabilities(status: &str) -> Vec<&'static str> {
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    let has = |capability: u32| effective >> capability & 1 == 1;
    let mut missing = Vec::new();
    // CAP_SYS_ADMIN includes the two younger ones.
    if !has(CAP_SYS_ADMIN) {
        if !has(CAP_BPF) {
            missing.push("CAP_BPF");
        }
        if !has(CAP_PERFMON) {
            missing.push("CAP_PERFMON");
        }
    }
    if !has(CAP_NET_ADMIN) {
        missing.push("CAP_NET_ADMIN");
    }
    missing
}

/// Checks that the kernel is new enough and describes its types.
///
/// # Errors
/// [`Error::OldKernel`] or [`Error::NoBtf`].
pub fn check_kernel() -> Result<()> {
    check_version()?;
    check_btf()
}

/// Checks that the kernel is new enough.
///
/// # Errors
/// [`Error::OldKernel`].
pub(crate) fn check_version() -> Result<()> {
    let release = release()?;
    if version(&release).is_none_or(|version| version < OLDEST_KERNEL) {
        return Err(Error::OldKernel { release });
    }
    Ok(())
}

/// Checks that the kernel describes its types, against which all our programs are relocated.
///
/// # Errors
/// [`Error::NoBtf`].
pub(crate) fn check_btf() -> Result<()> {
    if Path::new("/sys/kernel/btf/vmlinux").exists() { Ok(()) } else { Err(Error::NoBtf) }
}

fn release() -> Result<String> {
    let name = nix::sys::utsname::uname().map_err(Error::errno("ask for the kernel's version"))?;
    Ok(name.release().to_string_lossy().into_owned())
}

/// Major and minor version in a string like `6.12.3-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Whether `cong_control` gets the ACK number and flags before the rate sample, as from Linux
/// 6.10, and in older ones with a backport.
///
/// # Errors
/// [`Error::NoBtf`] if the kernel does not describe the function.
pub(crate) fn cong_control_has_ack() -> Result<bool> {
    has_ack(&types()?)
}

/// The types of the running kernel.
fn types() -> Result<Btf<'static>> {
    Btf::from_vmlinux().map_err(|_| Error::NoBtf)
}

fn has_ack(btf: &Btf<'_>) -> Result<bool> {
    let id = operation(btf, "cong_control")?.ok_or(Error::NoBtf)?;
    let pointer: Ptr<'_> = btf.type_by_id(id).ok_or(Error::NoBtf)?;
    let target: BtfType<'_> = pointer.referenced_type().skip_mods_and_typedefs();
    let function = FuncProto::try_from(target).map_err(|_| Error::NoBtf)?;
    Ok(function.iter().count() > 2)
}

/// Whether the start of sending has a separate operation, as from Linux 7.1, and is no longer one of the
/// events of `cwnd_event`.
///
/// # Errors
/// [`Error::NoBtf`] if the kernel does not describe its congestion controls.
pub(crate) fn has_tx_start_operation() -> Result<bool> {
    has_tx_start(&types()?)
}

fn has_tx_start(btf: &Btf<'_>) -> Result<bool> {
    Ok(operation(btf, "cwnd_event_tx_start")?.is_some())
}

/// The type of an operation of the kernel's congestion controls, if they have one of that name.
fn operation(btf: &Btf<'_>, name: &str) -> Result<Option<TypeId>> {
    let operations: Struct<'_> = btf.type_by_name("tcp_congestion_ops").ok_or(Error::NoBtf)?;
    let mut members = operations.iter();
    Ok(members
        .find(|member| member.name.is_some_and(|found| found == name))
        .map(|member| member.ty))
}

/// Checks that the kernel, or a module that it can load, has a congestion control.
///
/// # Errors
/// [`Error::BadCongestion`] for an invalid name, [`Error::UnknownCongestion`] for an unknown one; both list
/// the available ones.
pub fn check_congestion(name: &str) -> Result<()> {
    check_congestion_name(name)?;
    if has_congestion(name)? {
        return Ok(());
    }
    let available = available_congestion();
    Err(Error::UnknownCongestion { name: name.to_owned(), available })
}

/// Checks that the kernel would use the whole `name`: it truncates longer ones to 15 bytes.
///
/// Other congestion controls may have characters that [`check_name`] rejects for Lull's. A slash, which is
/// invalid in the name of a cgroup, is in none of the kernel's.
pub(crate) fn check_congestion_name(name: &str) -> Result<()> {
    if (1..=names::LONGEST).contains(&name.len()) && !name.contains('/') {
        return Ok(());
    }
    Err(Error::BadCongestion { name: name.to_owned(), available: available_congestion() })
}

/// The registered congestion controls, separated by spaces.
pub(crate) fn available_congestion() -> String {
    fs::read_to_string(REGISTERED)
        .map_or_else(|_| "a list that cannot be read".to_owned(), |list| list.trim().to_owned())
}

/// Tries the name on a socket: this shows what this process may use, and loads modules.
///
/// Inside another `lull exec` the hooks replace our name by that one's, and the call succeeds. There the list
/// shows the registered controls, and no module is loaded.
pub(crate) fn has_congestion(name: &str) -> Result<bool> {
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)
        .or_else(|_| socket(AddressFamily::Inet6, SockType::Stream, SockFlag::SOCK_CLOEXEC, None))
        .map_err(Error::errno("make a TCP socket"))?;
    match sys::set_option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_bytes())
    {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(false),
        Err(source) => {
            return Err(Error::Io { what: format!("choose '{name}' for a socket"), source });
        }
    }
    let chosen = getsockopt(&socket, sockopt::TcpCongestion)
        .map_err(Error::errno("ask a socket for its congestion control"))?;
    Ok(chosen == name || is_registered(name))
}

/// Whether a congestion control of that name is registered now.
pub(crate) fn is_registered(name: &str) -> bool {
    let list = fs::read_to_string(REGISTERED).unwrap_or_default();
    list.split_whitespace().any(|registered| registered == name)
}

/// Checks that `name` is valid for a congestion control.
///
/// # Errors
/// [`Error::BadName`].
pub fn check_name(name: &str) -> Result<()> {
    if names::is_valid(name) { Ok(()) } else { Err(Error::BadName { name: name.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The types of an artificial kernel whose congestion controls have these operations; clang, which builds
    /// the programs too, describes them.
    fn kernel_with(operations: &str) -> Btf<'static> {
        let folder = tempfile::tempdir().unwrap();
        let [source, object] = ["types.c", "types.o"].map(|name| folder.path().join(name));
        let text = format!(
            "struct sock; struct rate_sample; typedef unsigned int u32; typedef unsigned char u8;
             {operations} operations;"
        );
        fs::write(&source, text).unwrap();
        let mut clang = Command::new("clang");
        clang.args(["-target", "bpf", "-g", "-O2", "-c", "-o"]).args([&object, &source]);
        assert!(clang.status().unwrap().success(), "{clang:?}");
        Btf::from_path(&object).unwrap()
    }

    #[test]
    fn cong_control_signature_is_read_from_kernel_types() {
        for (parameters, expected) in [
            // Linux 6.9, and 6.10.
            ("struct sock *sk, const struct rate_sample *rs", false),
            ("struct sock *sk, u32 ack, int flag, const struct rate_sample *rs", true),
        ] {
            let kernel = kernel_with(&format!(
                "struct tcp_congestion_ops {{ u32 (*ssthresh)(struct sock *sk);
                                              void (*cong_control)({parameters}); }}"
            ));
            assert_eq!(has_ack(&kernel).unwrap(), expected, "{parameters}");
        }
    }

    #[test]
    fn tx_start_operation_is_found_if_present() {
        for (operation, expected) in [
            // Linux 6.18, and 7.1.
            ("", false),
            ("void (*cwnd_event_tx_start)(struct sock *sk);", true),
        ] {
            let kernel = kernel_with(&format!(
                "struct tcp_congestion_ops {{ void (*cwnd_event)(struct sock *sk, u8 event);
                                              {operation} }}"
            ));
            assert_eq!(has_tx_start(&kernel).unwrap(), expected, "{operation}");
        }
    }

    #[test]
    fn kernel_without_congestion_types_is_reported() {
        let without_the_structure = kernel_with("struct tcp_sock { u32 snd_cwnd; }");
        let without_the_operation =
            kernel_with("struct tcp_congestion_ops { u32 (*ssthresh)(struct sock *sk); }");
        for kernel in [&without_the_structure, &without_the_operation] {
            assert!(matches!(has_ack(kernel), Err(Error::NoBtf)));
        }
        assert!(matches!(has_tx_start(&without_the_structure), Err(Error::NoBtf)));
    }

    #[test]
    fn release_string_gives_its_version() {
        for (release, expected) in [
            ("6.12.3-amd64", Some((6, 12))),
            ("6.4.0", Some((6, 4))),
            ("7.0-rc1", Some((7, 0))),
            ("2.6.60", Some((2, 6))),
            ("linux", None),
        ] {
            assert_eq!(version(release), expected, "{release}");
        }
    }

    #[test]
    fn missing_capabilities_are_named() {
        assert_eq!(
            missing_capabilities("CapEff:\t0000000000000000\n"),
            ["CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"]
        );
        assert!(missing_capabilities("CapEff:\t000001ffffffffff\n").is_empty());
        let without_net_admin = format!("CapEff:\t{:016x}\n", 1u64 << CAP_SYS_ADMIN);
        assert_eq!(missing_capabilities(&without_net_admin), ["CAP_NET_ADMIN"]);
    }

    #[test]
    fn name_too_long_for_the_kernel_is_rejected() {
        for name in ["reno", "nice", "dctcp-2.x", "abcdefghijklmno"] {
            assert!(check_congestion_name(name).is_ok(), "{name}");
        }
        for name in ["", "abcdefghijklmnop", "a/b", "../cubic"] {
            assert!(check_congestion_name(name).is_err(), "{name}");
        }
    }
}
