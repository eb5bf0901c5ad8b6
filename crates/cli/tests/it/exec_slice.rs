//! `lull kernel slice`: a cgroup whose processes are in the background without `lull exec`, as a slice of systemd.

use std::fs;
use std::process::Stdio;

use lull_testing::needs;

use crate::support::{Service, Variant, finish, lull, shell};

const REPORTS: &str = "import socket
listener = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(listener.getsockname())
client.sendall(bytes(2000))
print(client.getsockopt(6, 13, 16).rstrip(bytes(1)).decode(), client.getsockopt(0, 1))";

/// As systemd does for a unit with `Slice=`, and a container engine with a parent cgroup: a process comes into a
/// cgroup inside the slice before its program starts.
#[test]
fn unit_of_a_slice_is_in_the_background() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let control = Variant::load(&[]);
    let slice = Service::make();
    let said = finish(&mut lull(&["kernel", "slice", "--cc", &control.0, &slice.name()])).ok();
    assert_eq!(said, format!("processes of {} are in the background from now on\n", slice.name()));
    let unit = slice.0.join("unit.service");
    fs::create_dir(&unit).unwrap();
    let script = "echo $$ >$1/cgroup.procs && exec python3 -c \"$2\"";
    let mut run = shell(script, &[unit.to_str().unwrap(), REPORTS]);
    assert_eq!(finish(run.stdin(Stdio::null())).ok(), format!("{} 4\n", control.0));
    // The second time changes nothing.
    let said = finish(&mut lull(&["kernel", "slice", "--cc", &control.0, &slice.name()])).ok();
    assert_eq!(said, format!("processes of {} were in the background before\n", slice.name()));
}

#[test]
fn slice_needs_a_path_of_a_cgroup() {
    needs!(lull_testing::bpf());
    for path in ["relative", "/", "/a/../b"] {
        finish(&mut lull(&["kernel", "slice", path])).fails(1, "write its path below the mount");
    }
}
