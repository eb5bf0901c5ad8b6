//! `lull doctor` on machines with missing features.

use crate::support::{LULL, finish, lull, private_shell, shell};
use lull_testing::{PublicCopy, needs};
use serde_json::Value;

#[test]
fn doctor_finds_no_problem_where_exec_runs() {
    needs!(lull_testing::bpf());
    let said = finish(&mut lull(&["doctor", "--json"])).ok();
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["ok"], true, "{report}");
    let findings = report["findings"].as_array().unwrap();
    let nice = findings.iter().find(|finding| finding["check"] == "TCP Nice").unwrap();
    assert_eq!((&nice["level"], &nice["found"]), (&"ok".into(), &"the kernel loads it".into()));
    let table = finish(&mut lull(&["doctor"])).ok();
    assert!(table.lines().any(|line| line.starts_with("ok       kernel ")), "{table}");
}

#[test]
fn doctor_names_problem_and_remedy() {
    needs!(lull_testing::bpf());
    let script = "mount -t tmpfs none /sys/kernel/btf; \"$LULL\" doctor";
    let said = finish(&mut private_shell(script, &[]));
    assert_eq!(said.code(), Some(1), "{said:?}");
    let lines: Vec<&str> = said.out.lines().collect();
    let at = lines.iter().position(|line| line.starts_with("problem  type information ")).unwrap();
    assert!(lines[at].ends_with("/sys/kernel/btf/vmlinux is missing"), "{said:?}");
    assert!(lines[at + 1].trim_start().starts_with("-> use a kernel built with"), "{said:?}");

    let script = "sysctl -qw net.ipv4.tcp_congestion_control=reno; mount -t sysfs sysfs /sys
        ip link add d0 type veth peer name d1; ip address add 10.9.0.1/24 dev d0
        ip link set d0 mtu 1000 up; ip link set d1 up; ip route add default via 10.9.0.2
        \"$LULL\" doctor";
    let script = format!("unshare --net --mount sh -c '{script}'");
    let said = finish(&mut shell(&script, &[]));
    assert_eq!(said.code(), Some(0), "warnings are no problem: {said:?}");
    for line in ["warning  MTU ", "ok       default congestion control  reno"] {
        assert!(said.out.lines().any(|found| found.starts_with(line)), "{line}: {said:?}");
    }
}

#[test]
fn doctor_advises_plain_users_to_become_root() {
    needs!(lull_testing::bpf(), lull_testing::command("setpriv"));
    let public = PublicCopy::of(LULL.as_ref());
    let script = "setpriv --reuid=65534 --regid=65534 --clear-groups \"$1/lull\" doctor";
    let said = finish(&mut shell(script, &[public.folder().to_str().unwrap()]));
    assert_eq!(said.code(), Some(1), "{said:?}");
    assert!(said.out.contains("problem  privilege "), "{said:?}");
    assert!(said.out.contains("-> run it as root\n"), "{said:?}");
}
