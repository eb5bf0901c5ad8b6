//! `lull try` over an emulated link.

use lull_testing::needs;
use serde_json::Value;

use crate::support::{LULL, finish, lull, program, shell};

/// Starts the other end, and measures an upload and a download.
const MEASURE: &str = r#"
ip netns exec right1 python3 "$REMOTE" serve &
sleep 1
for direction in "" --download; do
    "$LULL" try --json --seconds 4 $direction --rsh "python3 $REMOTE" "$LULL_RIGHT_1" || exit 1
done
"#;

#[test]
fn try_shows_less_delay_under_lull_than_without() {
    needs!(lull_testing::bpf(), lull_testing::root(), lull_testing::command("python3"));
    let mut command = shell(
        r#""$LULL" lab emulate --rate 4mbit --rtt 20ms --buffer 100kB -- bash -c "$MEASURE""#,
        &[],
    );
    command.env("LULL", LULL).env("MEASURE", MEASURE).env("REMOTE", program("remote_shell.py"));
    let said = finish(&mut command);
    let reports: Vec<Value> = said
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {said:?}")))
        .collect();
    assert_eq!((said.code(), reports.len()), (Some(0), 2), "{said:?}");
    for (report, direction) in reports.iter().zip(["upload", "download"]) {
        assert_eq!(report["direction"], direction);
        let [alone, plain, under] = [0, 1, 2].map(|at| &report["phases"][at]);
        let median = |phase: &Value| phase["ping_ms"]["median"].as_f64().unwrap();
        println!("{direction}: {alone} {plain} {under}");
        assert!(median(plain) > 1.3 * median(alone), "it delays others: {report}");
        // Whether the server's downloads fill the queue within the time depends on its start.
        assert!(direction == "download" || median(under) < median(plain), "{report}");
        for phase in [plain, under] {
            assert!(phase["bytes"].as_u64().unwrap() > 0, "{report}");
            assert!(phase["bits_per_second"].as_f64().unwrap() < 5e6, "{report}");
        }
    }
}

#[test]
fn try_explains_what_it_cannot_do() {
    finish(&mut lull(&["try", "--rsh", "false", "host"])).fails(1, "cannot run a command there");
    finish(&mut lull(&["try", "--rsh", "/no/such", "host"])).fails(1, "cannot run /no/such");
    finish(&mut lull(&["try", "--seconds", "1", "host"])).fails(2, "--seconds");
    finish(&mut lull(&["try", "--most", "1001", "host"])).fails(2, "--most");
}
