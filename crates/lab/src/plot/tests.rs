use serde_json::json;

use super::data;
use super::*;
use crate::plan::Plan;
use crate::record::{GroupRecord, PhaseRecord};

/// A plan over networks and caps, with one plot.
fn plan(plot: &str) -> Result<Plan, String> {
    let text = format!(
        "id = 'p'\ntitle = 'P'\n[paper]\nsource = 'a'\nstatement = 'b'\n\
         [[axes]]\nname = 'network'\nvalues = ['slow', 'fast']\n\
         [[axes]]\nname = 'cap'\nvalues = [1, 2, 'nice']\n\
         [topology]\nrate = '10mbit'\nrtt = '20ms'\n\
         [[groups]]\nname = 'a'\nkind = 'bulk'\ncontrol = 'cubic'\nphases = ['p']\n\
         [[phases]]\nname = 'p'\nsettle = '1s'\nmeasure = '1s'\n\
         [[plots]]\nname = 'x'\ntitle = 'X'\n{plot}"
    );
    Plan::parse("p.toml", &text, false).map_err(|error| error.to_string())
}

fn cell(network: &str, cap: serde_json::Value, goodput_mbit: f64, sent_mbit: f64) -> CellRecord {
    let group = GroupRecord { goodput_mbit, sent_mbit, ..GroupRecord::default() };
    CellRecord {
        values: json!({ "network": network, "cap": cap }).as_object().unwrap().clone(),
        phases: vec![PhaseRecord {
            name: "p".to_owned(),
            groups: [("a".to_owned(), group)].into(),
            ..PhaseRecord::default()
        }],
        ..CellRecord::default()
    }
}

#[test]
fn entries_are_bars_with_a_range_of_their_own() {
    let plan = plan(
        "kind = 'bars'\nx = 'network'\ny_title = 'y'\n\
         entries = [\n\
           { name = 'goodput', y = 'goodput.a.p' },\n\
           { name = 'sent', y = 'sent.a.p', low = 'goodput.a.p - 1', high = 'sent.a.p + 1' },\n\
         ]",
    )
    .unwrap();
    let cells = [cell("slow", json!(1), 2.0, 3.0), cell("slow", json!(2), 4.0, 5.0)];
    let panels = data::panels(&plan, &plan.plots[0], &cells);
    let [panel] = &panels[..] else { panic!("{panels:?}") };
    let names: Vec<&str> = panel.series.iter().map(|series| series.name.as_str()).collect();
    assert_eq!(names, ["goodput", "sent"]);
    let range = |series: usize| {
        let point = panel.series[series].points[0].unwrap();
        (point.low, point.mean, point.high, point.has_range)
    };
    assert_eq!(range(0), (2.0, 3.0, 4.0, true));
    assert_eq!(range(1), (1.0, 4.0, 6.0, true));
    // Nobody measured the other network.
    assert_eq!(panel.series[0].points[1], None);
    let drawn = figures(&plan, &cells).unwrap();
    assert!(drawn[0].svg.contains("goodput") && drawn[0].svg.contains("sent"));
}

#[test]
fn points_of_a_series_are_joined_in_the_plan_s_order_and_repetitions_are_one_point() {
    let plan = plan(
        "kind = 'points'\nx = 'goodput.a.p'\nx_title = 'time, s'\ny = 'sent.a.p'\n\
         y_title = 'delay, ms'\nseries = 'network'\nalone = \"cap == 'nice'\"\n\
         alone_title = 'Nice'\nlog = true",
    )
    .unwrap();
    let cells = [
        cell("slow", json!(1), 10.0, 1.0),
        cell("slow", json!(1), 30.0, 3.0),
        cell("slow", json!(2), 5.0, 8.0),
        cell("slow", json!("nice"), 6.0, 2.0),
        cell("fast", json!(1), 1.0, 1.0),
    ];
    let traces = data::traces(&plan, &plan.plots[0], &cells);
    let [slow, fast] = &traces[..] else { panic!("{traces:?}") };
    assert_eq!(slow.joined, [(20.0, 2.0), (5.0, 8.0)]);
    assert_eq!(slow.alone, [(6.0, 2.0)]);
    assert_eq!((fast.joined.len(), fast.alone.len()), (1, 0));
    let drawn = figures(&plan, &cells).unwrap();
    for word in ["slow", "fast", "Nice", "time, s", "delay, ms"] {
        assert!(drawn[0].svg.contains(word), "no {word} in the plot");
    }
    assert!(figures(&plan, &[]).unwrap().is_empty());
}

#[test]
fn a_plot_that_says_too_little_or_too_much_is_told() {
    for (plot, word) in [
        ("kind = 'bars'\nx = 'cap'\ny_title = 'y'", "'entries'"),
        (
            "kind = 'bars'\nx = 'cap'\ny_title = 'y'\ny = '1'\nentries = [{ name = 'a', y = '1' }]",
            "'entries'",
        ),
        (
            "kind = 'bars'\nx = 'cap'\ny_title = 'y'\nseries = 'cap'\n\
             entries = [{ name = 'a', y = '1' }]",
            "'series'",
        ),
        ("kind = 'lines'\nx = 'cap'\ny_title = 'y'\ny = '1'\nx_title = 'x'", "'x_title'"),
        ("kind = 'points'\nx = '1 +'\ny_title = 'y'\ny = '1'", "'1 +'"),
        ("kind = 'points'\nx = '1'\ny_title = 'y'\ny = '1'\npanels = 'cap'", "panels"),
        ("kind = 'points'\nx = '1'\ny_title = 'y'\ny = '1'\nseries = 'rate'", "no axis"),
    ] {
        let error = plan(plot).expect_err(plot);
        assert!(error.starts_with("p.toml:") && error.contains(word), "{plot}: {error}");
    }
}

#[test]
fn curves_of_no_plan_are_drawn_with_their_names() {
    let curve = |name: &str, points: &[(f64, f64)]| Curve {
        name: name.to_owned(),
        points: points.to_vec(),
    };
    let all = [curve("one", &[(0.0, 0.0), (2.0, 0.5)]), curve("other", &[(1.0, 0.1)])];
    let svg = curves("Gain", "cost, kB", "gain", &all).unwrap();
    for words in ["Gain", "cost, kB", "gain", ">\none\n<", ">\nother\n<"] {
        assert!(svg.contains(words), "no {words} in {svg}");
    }
    assert_eq!(svg.matches("<circle").count(), 3, "{svg}");
    // Without anything to draw it is an empty frame.
    assert!(curves("Nothing", "x", "y", &[]).unwrap().contains("Nothing"));
}
