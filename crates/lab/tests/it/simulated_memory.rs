//! The memory of a simulated flow.

use crate::common::{plan, run_one};

#[test]
fn set_up_of_a_flow_counts_as_its_memory() {
    // It is almost certain that none of them begins in the ten milliseconds that are simulated.
    let plan = plan(
        "[topology]
         kind = 'simulator'
         rate = '10mbit'
         rtt = '40ms'
         access_rate = '100mbit'
         access_delay = '1ms'
         [[groups]]
         name = 'flows'
         kind = 'bulk'
         control = 'reno'
         count = 5000
         spread = '100000s'
         phases = ['p']
         [[phases]]
         name = 'p'
         settle = '0s'
         measure = '10ms'",
    );
    let memory = || run_one(&plan).cost.unwrap().memory_bytes_per_flow;
    let (memory, again) = (memory(), memory());
    // Each has an access link at either end, in either direction, each at least a cache line long.
    assert!(memory >= 5000.0 * 4.0 * 64.0, "{memory} bytes");
    assert_eq!(memory, again, "whatever the process has taken or freed before");
}
