//! Connections that share a path, in the kernel, over an emulated link.

use std::ffi::{CStr, CString};
use std::thread;
use std::time::Duration;

use lull_emulator::{Emulator, Topology};
use lull_kernel::{Constants, PathTable, RegisteredControl};
use lull_testing::{bound, bpf, needs};

use super::bulk::Bulk;
use super::links::PAYLOAD_RATE;

/// `lull`, under a name of this test.
fn hold(name: &str) -> (RegisteredControl, &'static CStr) {
    let name = format!("{name}{}", std::process::id());
    let held = lull_kernel::register_control(&name, Constants::Lull(PathTable::default()))
        .expect("it loads");
    let name = CString::new(held.name()).expect("a name has no zero").into_boxed_c_str();
    (held, Box::leak(name))
}

/// Starts connections of one host together. The share of the link that they get, after the warm-up.
fn share_of(emulator: &Emulator, host: usize, connections: usize, bulk: Bulk) -> f64 {
    thread::scope(|scope| {
        let run = || bulk.run(emulator.left(host), emulator.right(0));
        let flows: Vec<_> = (0..connections).map(|_| scope.spawn(run)).collect();
        flows.into_iter().map(|flow| flow.join().expect("it ends")).sum::<f64>() / PAYLOAD_RATE
    })
}

#[test]
fn one_connection_and_eight_fill_the_link() {
    needs!(bpf());
    let (held, name) = hold("lf");
    for connections in [1, 8] {
        let emulator = Emulator::start(&Topology::default()).expect("it starts");
        let bulk = Bulk {
            duration: Duration::from_secs(11),
            warm_up: Duration::from_secs(5),
            ..Bulk::new(name)
        };
        let share = share_of(&emulator, 0, connections, bulk);
        emulator.finish().expect("it ends");
        eprintln!("{connections} connections have {share:.3} of the link");
        // They take a late emulator for a queue, and yield.
        assert!((bound(0.001, 0.9)..1.05).contains(&share), "{connections}: {share}");
    }
    drop(held);
}

#[test]
fn eight_connections_yield_to_one_of_another_host() {
    needs!(bpf());
    let (held, name) = hold("ly");
    let emulator =
        Emulator::start(&Topology { left: 2, ..Topology::default() }).expect("it starts");
    // Both are counted from the tenth second on.
    let background = Bulk {
        duration: Duration::from_secs(16),
        warm_up: Duration::from_secs(10),
        ..Bulk::new(name)
    };
    let foreground = Bulk {
        duration: Duration::from_secs(10),
        warm_up: Duration::from_secs(4),
        ..Bulk::new(c"cubic")
    };
    let (yielding, other) = thread::scope(|scope| {
        let flows = scope.spawn(|| share_of(&emulator, 0, 8, background));
        thread::sleep(Duration::from_secs(6));
        let other = share_of(&emulator, 1, 1, foreground);
        (flows.join().expect("they end"), other)
    });
    emulator.finish().expect("it ends");
    eprintln!("the background has {yielding:.3} of the link, the other connection {other:.3}");
    assert!(other > bound(0.5, 0.9), "{other}");
    assert!(yielding < bound(1.0, 0.1) * other, "{yielding} beside {other}");
    drop(held);
}
