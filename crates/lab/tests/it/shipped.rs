//! Whether all expressions of the shipped plans have values in the cells that they select. Each is given all
//! quantities that such a cell can measure, and no others.

use std::path::Path;

use lull_emulator::Spread;
use lull_emulator::traffic::Work;
use lull_lab::judge::judge;
use lull_lab::plan::{
    Capacity, Cell, Check, CheckScope, Expression, Group, Kind, Network, Plan, PlanSet, Plot,
    PlotKind, Selection,
};
use lull_lab::record::{
    ActionRecord, CellRecord, CostRecord, CpuRecord, DemandRecord, GroupRecord, Latency,
    LinkRecord, MAX_FLOWS, PhaseRecord, SimulationRecord, Transfers,
};
use serde_json::{Map, Value, json};

/// Numbers from 1 to 2, with no two close to each other, so that nothing is divided by zero.
struct Numbers(f64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = (self.0 + 0.618_033_988_749_895).fract();
        1.0 + self.0
    }

    fn count(&mut self) -> u64 {
        (self.next() * 1000.0) as u64
    }

    fn spread(&mut self) -> Spread {
        let [mean_ms, p50_ms, p95_ms, p99_ms, max_ms] = std::array::from_fn(|_| self.next());
        Spread { mean_ms, p50_ms, p95_ms, p99_ms, max_ms }
    }

    fn latency(&mut self) -> Latency {
        let Spread { mean_ms, p50_ms, p95_ms, p99_ms, max_ms } = self.spread();
        let (count, unanswered, failed) = (self.count(), 0, 0);
        Latency { count, unanswered, failed, mean_ms, p50_ms, p95_ms, p99_ms, max_ms }
    }
}

/// All expressions of a plan.
fn expressions(plan: &Plan) -> Vec<String> {
    let mut all: Vec<Option<&Expression>> = Vec::new();
    for metric in &plan.metrics {
        all.extend([Some(&metric.value), metric.only.as_ref()]);
    }
    for check in &plan.checks {
        let Check { value, per, only, at_least, at_most, never_below, never_above, .. } = check;
        all.push(Some(value));
        all.extend([per, only, at_least, at_most, never_below, never_above].map(Option::as_ref));
    }
    for plot in &plan.plots {
        all.extend([&plot.y, &plot.only, &plot.alone].map(Option::as_ref));
        for entry in &plot.entries {
            all.extend([Some(&entry.y), entry.low.as_ref(), entry.high.as_ref()]);
        }
    }
    let mut texts: Vec<String> =
        all.into_iter().flatten().map(|expression| expression.text().to_owned()).collect();
    texts.extend(plan.plots.iter().map(|plot| plot.x.clone()));
    texts
}

/// The quantities of program reports that a plan uses: `report.GROUP.PHASE.…`, without the first word. The
/// contents of a report are not declared elsewhere.
fn reported(plan: &Plan) -> Vec<Vec<String>> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "_.[]".contains(c);
    let mut paths = Vec::new();
    for text in expressions(plan) {
        let words = text.split(|c| !is_path(c));
        for word in words.filter_map(|word| word.split_once("report.")) {
            for path in of_elements(&text, word.1) {
                paths.push(path.split('.').map(str::to_owned).collect());
            }
        }
    }
    paths
}

/// If `path` leads to a list in this expression, the parts of an element that it uses. These are attributes,
/// by Jinja's filters or as the `differences` of two lists. Or it is the element itself, as a number that
/// others may be `in` the list by, or that has a `median`. Otherwise the path.
fn of_elements(text: &str, path: &str) -> Vec<String> {
    let of_numbers = [format!("'in', report.{path}"), format!("median(report.{path})")];
    if of_numbers.iter().any(|use_of| text.contains(use_of)) {
        return vec![format!("{path}[0]")];
    }
    if text.contains(&format!("differences(report.{path},")) {
        let named = |word: &str| text.split_once(word)?.1.split('\'').next();
        let names = ["by='", "of='"].into_iter().filter_map(named);
        return names.map(|name| format!("{path}[0].{name}")).collect();
    }
    let Some((_, filters)) = text.split_once(&format!("{path} | ")) else {
        return vec![path.to_owned()];
    };
    let names = filters.split("attr").skip(1).filter_map(|behind| behind.split('\'').nth(1));
    names.map(|name| format!("{path}[0].{name}")).collect()
}

/// Puts a number at `path`; `name[2]` leads to the third of a list.
fn put(value: &mut Value, path: &[String], number: f64) {
    let Some((first, rest)) = path.split_first() else {
        *value = json!(number);
        return;
    };
    let (name, at) = match first.split_once('[') {
        Some((name, at)) => (name, at.trim_end_matches(']').parse::<usize>().ok()),
        None => (first.as_str(), None),
    };
    if !value.is_object() {
        *value = json!({});
    }
    let inner = &mut value[name];
    let Some(at) = at else { return put(inner, rest, number) };
    if !inner.is_array() {
        *inner = json!([]);
    }
    let list = inner.as_array_mut().expect("a list");
    while list.len() <= at {
        list.push(Value::Null);
    }
    put(&mut list[at], rest, number);
}

fn group_record(
    cell: &Cell,
    group: &Group,
    phase: &str,
    reported: &[Vec<String>],
    numbers: &mut Numbers,
) -> GroupRecord {
    let is_emulated = matches!(cell.scenario.topology, Network::Emulated(_));
    let is_simulated = matches!(cell.scenario.topology, Network::Simulated(_));
    let mut record = GroupRecord {
        goodput_mbit: numbers.next(),
        sent_mbit: numbers.next(),
        packets: numbers.count(),
        dropped: numbers.count(),
        retransmitted: numbers.count(),
        ..GroupRecord::default()
    };
    if is_emulated || is_simulated {
        record.rtt_ms = Some(link(cell).rtt_ms + numbers.next());
        record.time_to_80_s = Some(numbers.next());
        record.time_to_90_s = Some(numbers.next());
    }
    if is_simulated {
        record.transferred_bytes = Some(numbers.count());
        record.waiting = Some(numbers.spread());
    }
    let is_tcp = !matches!(group.kind, Kind::Datagrams(_));
    if is_tcp && !matches!(group.kind.work(), Some(Work::Command { .. })) {
        record.srtt_ms = Some(numbers.next());
        record.window = Some(numbers.next());
    }
    if is_tcp && is_simulated {
        record.timeouts = Some(numbers.count());
        record.cuts = Some(numbers.count());
    }
    match &group.kind {
        Kind::Work(Work::Bulk { .. }) | Kind::Messages { .. } | Kind::Datagrams(_) => {
            record.fairness = Some(numbers.next());
            if group.count as usize <= MAX_FLOWS {
                record.flows_mbit = (0..group.count).map(|_| numbers.next()).collect();
            }
            record.delay = (!is_tcp).then(|| numbers.spread());
        }
        Kind::Work(Work::Requests { .. }) | Kind::Documents(_) | Kind::Flows(_) => {
            record.latency = Some(numbers.latency());
        }
        Kind::Work(Work::Probes(probes)) => {
            let actions = probes.actions.iter().map(|action| {
                let seconds = vec![numbers.next()];
                let beside_mbit = action.secondary.iter().map(|_| numbers.next()).collect();
                (action.name.clone(), ActionRecord { seconds, beside_mbit })
            });
            record.transfers = Some(Transfers { bytes: probes.bytes, actions: actions.collect() });
        }
        Kind::Work(Work::Command { report, .. }) => {
            record.completion_s = Some(numbers.next());
            if *report {
                let mut value = json!({});
                let own = reported
                    .iter()
                    .filter(|path| path.len() > 2 && path[0] == group.name && path[1] == phase);
                for path in own {
                    // Elements with the same number or seed are the same, and curves over counts go
                    // everywhere.
                    let is_same = |last: &String| {
                        ["number", "seed", "count"].iter().any(|one| last.contains(one))
                    };
                    let number =
                        if path.last().is_some_and(is_same) { 1.0 } else { numbers.next() };
                    put(&mut value, &path[2..], number);
                }
                record.report = Some(value);
            }
        }
    }
    if matches!(group.kind, Kind::Documents(_)) {
        record.demand = Some(DemandRecord {
            requests: numbers.count(),
            clients: numbers.count(),
            bytes: numbers.count(),
            mbit: numbers.next(),
            active_clients: numbers.next(),
        });
    }
    record
}

/// The bottleneck of a cell that has one. If its rate follows from a log, any rate is allowed.
fn link(cell: &Cell) -> LinkRecord {
    let (rate_mbit, rtt) = match &cell.scenario.topology {
        Network::Emulated(link) => {
            (link.rate.value.bits_per_second() as f64 / 1e6, link.rtt.value.0)
        }
        Network::Simulated(network) => match &network.capacity {
            Capacity::Rate(rate) => {
                (rate.value.bits_per_second() as f64 / 1e6, network.rtt.value.0)
            }
            Capacity::Demand { .. } => (1.0, network.rtt.value.0),
        },
        Network::Wire | Network::None { .. } => Default::default(),
    };
    let rtt_ms = rtt.as_secs_f64() * 1e3;
    let bdp = rate_mbit * rtt_ms * 1e3 / 8.0 / 1500.0;
    LinkRecord { rate_mbit, rtt_ms, bdp, buffer: bdp, ..LinkRecord::default() }
}

/// The record of a cell that has measured everything it can.
fn measured(cell: &Cell, reported: &[Vec<String>], numbers: &mut Numbers) -> CellRecord {
    let has_link = matches!(cell.scenario.topology, Network::Emulated(_) | Network::Simulated(_));
    let is_emulated = matches!(cell.scenario.topology, Network::Emulated(_));
    let is_simulated = matches!(cell.scenario.topology, Network::Simulated(_));
    let mut phases = Vec::new();
    for phase in &cell.scenario.phases {
        let own = cell.scenario.groups.iter().filter(|group| group.phases.contains(&phase.name));
        let groups = own.map(|group| {
            let record = group_record(cell, group, &phase.name, reported, numbers);
            (group.name.clone(), record)
        });
        let groups = groups.collect();
        phases.push(PhaseRecord {
            name: phase.name.clone(),
            measured_to_s: numbers.next(),
            utilisation: has_link.then(|| numbers.next()),
            queueing: has_link.then(|| numbers.spread()),
            overflows: is_simulated.then_some(1000),
            timing_error: is_emulated.then(|| numbers.spread()),
            arrival_error: is_emulated.then(|| numbers.spread()),
            cpu: CpuRecord {
                process_s: numbers.next(),
                interrupts_s: Some(numbers.next()),
                // Other tasks use little time, otherwise kernel-cpu does not judge.
                others_s: Some(0.01 * numbers.next()),
                stolen_s: 0.0,
                busy: Some(0.5),
            },
            groups,
            ..PhaseRecord::default()
        });
    }
    CellRecord {
        key: cell.key.clone(),
        hash: cell.hash.clone(),
        values: cell.values.clone(),
        repetition: cell.repetition,
        seed: cell.seed,
        link: has_link.then(|| link(cell)),
        phases,
        cpu_s: numbers.next(),
        emulator_cpu_s: numbers.next(),
        simulation: is_simulated.then(|| SimulationRecord {
            events: numbers.count(),
            delivered_packets: numbers.count(),
        }),
        cost: is_simulated.then(|| CostRecord {
            wall_s: numbers.next(),
            cpu_s: numbers.next(),
            memory_bytes_per_flow: numbers.next(),
        }),
        ..CellRecord::default()
    }
}

/// Whether an expression selects a cell.
fn is_selected(only: Option<&Expression>, quantities: &Value) -> Result<bool, String> {
    only.map_or(Ok(true), |only| only.holds(quantities).map_err(|error| error.to_string()))
}

/// Parts of a plan without a value. Repetitions measure the same: there is one of each.
fn untold(plan: &Plan) -> Vec<String> {
    let reported = reported(plan);
    let mut numbers = Numbers(0.0);
    let cells = plan.cells(&Selection::default(), 1).unwrap();
    let firsts = cells.iter().filter(|cell| cell.repetition == 1);
    let cells: Vec<CellRecord> =
        firsts.map(|cell| measured(cell, &reported, &mut numbers)).collect();
    let results = judge(plan, &cells);
    assert_eq!(results.rows.len(), cells.len(), "{}: a row is of one cell", plan.id);
    let mut untold = results.without_value.clone();
    for (check, verdict) in plan.checks.iter().zip(&results.verdicts) {
        // With one of each there is no interval, and so nothing is sure.
        let is_none = verdict.judged == 0 && check.of != CheckScope::Sure;
        if verdict.lacking > 0 || is_none {
            untold.push(format!("check '{}': {}", verdict.name, verdict.why));
        }
    }
    let with_metrics = cells.iter().zip(&results.rows).map(|(cell, row)| {
        let mut quantities = cell.quantities();
        let named = plan.metrics.iter().zip(&row.metrics);
        let found =
            named.filter_map(|(metric, value)| Some((metric.name.clone(), json!((*value)?))));
        quantities["metric"] = Value::Object(found.collect::<Map<_, _>>());
        quantities
    });
    let all: Vec<Value> = with_metrics.collect();
    for (at, metric) in plan.metrics.iter().enumerate() {
        // References to other cells are checked by `judge` alone.
        let Some(only) = metric.only.as_ref().filter(|only| !only.text().contains("reference"))
        else {
            continue;
        };
        for ((cell, quantities), row) in cells.iter().zip(&all).zip(&results.rows) {
            if row.metrics[at].is_none() && is_selected(Some(only), quantities) != Ok(false) {
                untold.push(format!("metric {}: {} has none", metric.name, cell.key));
            }
        }
    }
    for plot in &plan.plots {
        let Plot { name, only, entries, y, .. } = plot;
        let x = (plot.kind == PlotKind::Points).then(|| Expression::new(&*plot.x).unwrap());
        let own = [y.as_ref(), x.as_ref()];
        let ends = entries.iter().flat_map(|entry| [entry.low.as_ref(), entry.high.as_ref()]);
        let middles = entries.iter().map(|entry| Some(&entry.y));
        let of: Vec<&Expression> = own.into_iter().chain(ends).chain(middles).flatten().collect();
        let selected: Vec<_> = cells
            .iter()
            .zip(&all)
            .filter(|(_, quantities)| is_selected(only.as_ref(), quantities) != Ok(false))
            .collect();
        for expression in of {
            let why = |(cell, quantities): &(&CellRecord, &Value)| {
                let error = expression.number(quantities).err()?;
                Some(format!("plot {name}: {}: {error}", cell.key))
            };
            let faults: Vec<String> = selected.iter().filter_map(why).collect();
            // An expression that selects its cells must have values in all of them, another one in any.
            if faults.len() == selected.len() || only.is_some() {
                untold.extend(faults);
            }
        }
        if selected.is_empty() {
            untold.push(format!("plot {name}: of no cell"));
        }
    }
    untold
}

/// For full plans only: a subset may leave out cells that parts of a plan depend on.
#[test]
fn shipped_plans_have_values_for_all_they_show() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans");
    let plans = PlanSet::open(Some(&folder)).unwrap().find(&["*".to_owned()], false).unwrap();
    assert!(plans.len() > 50, "{}", plans.len());
    let mut faults = Vec::new();
    for plan in &plans {
        // One cell shows as much as a hundred.
        let untold = untold(plan).into_iter().take(5);
        faults.extend(untold.map(|what| format!("{}: {what}", plan.id)));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn check_that_some_cells_cannot_answer_is_found() {
    let plan = |only: &str| {
        let text = format!(
            "id = 'p'\ntitle = 'P'\n[paper]\nsource = 'a'\nstatement = 'b'\n\
             [topology]\nrate = '10mbit'\nrtt = '20ms'\n\
             [[axes]]\nname = 'flows'\nvalues = [1, 2]\n\
             [[groups]]\nname = 'a'\nkind = 'bulk'\ncontrol = 'cubic'\nphases = ['p', 'q']\n\
             [[phases]]\nname = 'p'\nsettle = '1s'\nmeasure = '1s'\n\
             [[phases]]\nname = 'q'\nsettle = '1s'\nmeasure = '1s'\nwhen = 'flows == 1'\n\
             [[checks]]\nname = 'c'\nvalue = 'goodput.a.q'\nat_least = 1\nwhere = '{only}'\n"
        );
        Plan::parse("p.toml", &text, false).unwrap()
    };
    assert_eq!(untold(&plan("flows == 1")), [""; 0]);
    for only in ["flows < 3", "flows == 3"] {
        assert!(!untold(&plan(only)).is_empty(), "{only}");
    }
}

#[test]
fn shipped_plans_contain_every_printed_value() {
    let mut held = 0;
    let shipped = |quick| PlanSet::built_in().find(&["*".to_owned()], quick).unwrap();
    for plan in [false, true].into_iter().flat_map(shipped) {
        // Nothing was measured: all values come from the plan.
        let cell = |cell: Cell| CellRecord {
            key: cell.key,
            values: cell.values,
            repetition: cell.repetition,
            ..CellRecord::default()
        };
        let cells = plan.cells(&Selection::default(), 1).unwrap().into_iter().map(cell);
        let cells: Vec<CellRecord> = cells.collect();
        let results = judge(&plan, &cells);
        for (at, metric) in plan.metrics.iter().enumerate() {
            if !metric.name.starts_with("printed") {
                continue;
            }
            for row in &results.rows {
                let values = Value::Object(row.values.clone());
                let is_held = metric.only.as_ref().is_none_or(|only| only.holds(&values).unwrap());
                let value = row.metrics[at];
                assert_eq!(value.is_some(), is_held, "{}: {} of {values}", plan.id, metric.name);
                held += usize::from(is_held);
            }
        }
    }
    assert!(held > 100, "{held}");
}

#[test]
fn shipped_values_with_commas_can_be_selected() {
    let mut selected = 0;
    for plan in PlanSet::built_in().find(&["*".to_owned()], false).unwrap() {
        let texts = plan.axes.iter().flat_map(|axis| {
            let texts = axis.values.iter().filter_map(Value::as_str);
            texts.map(|text| (axis.name.clone(), text.to_owned()))
        });
        for (axis, text) in texts.filter(|(_, text)| text.contains(',')) {
            let selection = Selection::new([&*format!("{axis}={text}")]).unwrap();
            let cells = plan.cells(&selection, 1).unwrap();
            assert!(!cells.is_empty(), "{}: {axis}={text}", plan.id);
            for cell in cells {
                assert_eq!(cell.values[&axis], text.as_str(), "{}", plan.id);
                selected += 1;
            }
        }
    }
    assert!(selected > 0, "beyond-kernel has such values");
}
