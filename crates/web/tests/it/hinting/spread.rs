//! The load of an epoch is spread over it (SSR §5.2.1.2): lists granted in it are sent before its end, and
//! not all at once.

use std::time::{Duration, Instant};

use lull_speculate::budget::{Growth, Parameters};
use lull_web::nps::{MonitorSettings, Settings};
use serde_json::json;

use super::{LIMIT, empty_model, quick, site_with};

const EPOCH: Duration = Duration::from_secs(1);
/// Only a wait takes this long between two programs on a machine.
const NOTICED: Duration = Duration::from_millis(250);

#[test]
fn lists_are_sent_throughout_their_epoch() {
    let parameters = Parameters {
        epoch: EPOCH,
        samples: 1,
        document: 1,
        growth: Growth::DoublingFirst,
        ..quick().parameters.unwrap()
    };
    let monitor = MonitorSettings { parameters: Some(parameters), ..quick() };
    let site = site_with(Settings { monitor, ..Settings::default() }, empty_model());
    site.go(1..25, &["/a", "/b"]);
    let begun = Instant::now();
    let (mut soon, mut later) = (0, 0);
    // Each time another client, so that none is over its rate.
    for visitor in (30..200).cycle() {
        let asked = Instant::now();
        let has_list = site.ask(visitor, "/a", &[], false)["hints"] != json!([]);
        let took = asked.elapsed();
        match (has_list, took > NOTICED) {
            (true, false) => soon += 1,
            (true, true) => later += 1,
            // An empty list comes at once.
            (false, _) => std::thread::sleep(Duration::from_millis(20)),
        }
        assert!(took < EPOCH + LIMIT, "it is never sent");
        if soon >= 3 && later >= 3 {
            break;
        }
        assert!(begun.elapsed() < 3 * LIMIT, "{soon} lists at once, {later} later");
    }
}
