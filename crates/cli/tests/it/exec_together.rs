//! Several concurrent `lull exec`: nested, and many in parallel.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Variant, eventually, finish, lull, shell};
use lull_testing::needs;
use serde_json::Value;

/// The hooks of the outer one let every choice succeed, and replace it by their own.
#[test]
fn missing_program_is_found_missing_in_nested_run() {
    needs!(lull_testing::bpf());
    let outer = "\"$LULL\" exec --quiet --cc reno --";
    let said = finish(&mut shell(&format!("{outer} \"$LULL\" exec --cc bogus -- true"), &[]));
    said.fails(125, "there is no congestion control 'bogus': this kernel has ");

    let nice = Variant::unloaded();
    let load = format!("{outer} \"$LULL\" kernel load --name $1");
    let said = finish(&mut shell(&load, &[&nice.0])).ok();
    assert!(said.starts_with(&format!("loaded '{}' (", nice.0)), "{said}");
    assert!(nice.is_loaded());
    // It is loaded now, although the hooks still choose their own.
    let known = format!("{outer} \"$LULL\" exec --quiet --cc $1 -- true");
    finish(&mut shell(&known, &[&nice.0])).ok();
}

#[test]
fn nested_run_loads_and_unloads_controls() {
    needs!(lull_testing::bpf());
    let nice = Variant::unloaded();
    let script = "\"$LULL\" exec --quiet --cc reno -- \
        \"$LULL\" exec --quiet --cc $1 --automatic -- \
        grep -cw $1 /proc/sys/net/ipv4/tcp_available_congestion_control";
    assert_eq!(finish(&mut shell(script, &[&nice.0])).ok(), "1\n");
    eventually("it is unloaded", || !nice.is_loaded());
}

/// The first of them loads the control, the last one unloads it, and sometimes none is left.
#[test]
fn parallel_runs_share_a_loaded_control() {
    const THREADS: u64 = 4;
    const MOST: u64 = 20;
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let script = "import socket
listener = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
client.sendall(b'x')
server.recv(1)
print(*(sock.getsockopt(6, 13, 16).rstrip(bytes(1)).decode() for sock in (client, server)))";
    let nice = Variant::unloaded();
    let exec = ["exec", "--cc", &nice.0, "--automatic", "--json", "--", "python3", "-c", script];
    let until = Instant::now() + Duration::from_secs(6);
    let run_in_turn = |number: u64| {
        let mut runs = 0;
        // On a slow machine the first runs take all of the time, and the control must be loaded again as well.
        while runs < 2 || runs < MOST && Instant::now() < until {
            let said = finish(&mut lull(&exec));
            assert_eq!(said.out, format!("{0} {0}\n", nice.0), "{said:?}");
            let summary: Value = serde_json::from_str(&said.err).unwrap();
            assert_eq!(summary["connections"], 2, "{summary}");
            assert_eq!(summary["connections_in_the_foreground"], 0, "{summary}");
            assert!(summary["yielding_seconds"].is_number(), "another control: {summary}");
            runs += 1;
            thread::sleep(Duration::from_millis((number + runs) % 3 * 50));
        }
    };
    thread::scope(|scope| {
        let run_in_turn = &run_in_turn;
        let threads: Vec<_> =
            (0..THREADS).map(|number| scope.spawn(move || run_in_turn(number))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(nice.cgroups(), Vec::<PathBuf>::new());
    eventually("it is unloaded", || !nice.is_loaded());
    assert_eq!(nice.status(), None);
}
