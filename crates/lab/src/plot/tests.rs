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
fn entries_are_bars_with_their_range() {
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
    // The other network was not measured.
    assert_eq!(panel.series[0].points[1], None);
    let drawn = figures(&plan, &cells).unwrap();
    assert!(drawn[0].svg.contains("goodput") && drawn[0].svg.contains("sent"));
}

#[test]
fn points_are_joined_in_plan_order_and_repetitions_merged() {
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

/// A plan over loads of 0.1, 1 and 10 with one plot of lines. Series without a load run at 1 only.
fn over_loads(plot: &str) -> Plan {
    let text = format!(
        "id = 'p'\ntitle = 'P'\nrepetitions = 2\n[paper]\nsource = 'a'\nstatement = 'b'\n\
         [[axes]]\nname = 'kind'\nvalues = ['swept', 'fixed']\n\
         [[axes]]\nname = 'load'\nvalues = [0.1, 1, 10]\n\
         [[exclude]]\nkind = 'fixed'\nload = [0.1, 10]\n\
         [topology]\nrate = '10mbit'\nrtt = '20ms'\n\
         [[groups]]\nname = 'a'\nkind = 'bulk'\ncontrol = 'cubic'\nphases = ['p']\n\
         [[phases]]\nname = 'p'\nsettle = '1s'\nmeasure = '1s'\n\
         [[plots]]\nname = 'x'\ntitle = 'X'\nkind = 'lines'\nx = 'load'\nseries = 'kind'\n\
         y = 'goodput.a.p'\ny_title = 'y'\n{plot}"
    );
    Plan::parse("p.toml", &text, false).unwrap()
}

fn loaded(kind: &str, load: f64, goodput_mbit: f64) -> CellRecord {
    // As the plan spells it.
    let load = if load < 1.0 { json!(load) } else { json!(load as u32) };
    let values = json!({ "kind": kind, "load": load }).as_object().unwrap().clone();
    CellRecord { values, ..cell("", json!(0), goodput_mbit, 0.0) }
}

/// The positions of a drawing's circles from left to right.
fn circles(svg: &str) -> Vec<i32> {
    let all = svg.split("<circle cx=\"").skip(1);
    let mut places: Vec<i32> =
        all.map(|rest| rest.split('"').next().unwrap().parse().unwrap()).collect();
    places.sort_unstable();
    places
}

#[test]
fn number_axis_is_even_linear_or_logarithmic() {
    let cells = [0.1, 1.0, 10.0].map(|load| loaded("swept", load, load));
    let gaps = |plot: &str| -> (i32, i32) {
        let drawn = figures(&over_loads(plot), &cells).unwrap();
        let places = circles(&drawn[0].svg);
        let [first, second, third] = &places[..] else { panic!("{plot}: {places:?}") };
        (second - first, third - second)
    };
    for spacing in ["", "spacing = 'log'"] {
        let (left, right) = gaps(spacing);
        assert!((left - right).abs() <= 1, "{spacing}: {left} {right}");
    }
    // 0.9 and 9.
    let (left, right) = gaps("spacing = 'linear'");
    assert!(right > 8 * left && left > 10, "{left} {right}");
}

#[test]
fn single_point_series_is_a_level_line_on_request() {
    let cells = [loaded("swept", 0.1, 1.0), loaded("swept", 10.0, 4.0), loaded("fixed", 1.0, 2.0)];
    let levels = |plot: &str| -> Vec<bool> {
        let plan = over_loads(plot);
        let panels = data::panels(&plan, &plan.plots[0], &cells);
        panels[0].series.iter().map(|series| series.is_level).collect()
    };
    assert_eq!(levels(""), [false, false]);
    assert_eq!(levels("levels = true"), [false, true]);
    let circled = |plot: &str| circles(&figures(&over_loads(plot), &cells).unwrap()[0].svg).len();
    assert_eq!((circled(""), circled("levels = true")), (3, 2));
    // Cells that are not recorded yet do not count as present at one position only.
    let plan = over_loads("levels = true");
    let one = [loaded("swept", 1.0, 1.0)];
    assert!(!data::panels(&plan, &plan.plots[0], &one)[0].series[0].is_level);
}

#[test]
fn non_positive_value_on_log_axis_is_an_arrow() {
    let cells = [
        loaded("swept", 0.1, 0.5),
        // Repetitions are averaged arithmetically: their mean is 1, and not that of 3 and a value near 0.
        loaded("swept", 1.0, 3.0),
        loaded("swept", 1.0, -1.0),
        loaded("swept", 10.0, -0.2),
    ];
    let svg = |plot: &str| figures(&over_loads(plot), &cells).unwrap().remove(0).svg;
    let (linear, decades) = (svg(""), svg("log = true"));
    assert_eq!((circles(&linear).len(), circles(&decades).len()), (3, 2));
    assert!(decades.contains("not above zero") && !linear.contains("not above zero"));
    let plan = over_loads("log = true");
    let points = &data::panels(&plan, &plan.plots[0], &cells)[0].series[0].points;
    let means: Vec<f64> = points.iter().map(|point| point.unwrap().mean).collect();
    assert_eq!(means, [0.5, 1.0, -0.2]);
    // If no value is above zero, the axis is linear.
    let below = [loaded("swept", 1.0, -1.0)];
    assert!(figures(&over_loads("log = true"), &below).is_ok());
}

#[test]
fn incomplete_or_excessive_plot_is_rejected() {
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
        ("kind = 'lines'\nx = 'cap'\ny_title = 'y'\ny = '1'\nspacing = 'log'", "'cap'"),
        ("kind = 'lines'\nx = 'network'\ny_title = 'y'\ny = '1'\nspacing = 'linear'", "'network'"),
        ("kind = 'bars'\nx = 'cap'\ny_title = 'y'\ny = '1'\nlevels = true", "no lines"),
        ("kind = 'points'\nx = '1 +'\ny_title = 'y'\ny = '1'", "'1 +'"),
        ("kind = 'points'\nx = '1'\ny_title = 'y'\ny = '1'\npanels = 'cap'", "panels"),
        ("kind = 'points'\nx = '1'\ny_title = 'y'\ny = '1'\nseries = 'rate'", "no axis"),
    ] {
        let error = plan(plot).expect_err(plot);
        assert!(error.starts_with("p.toml:") && error.contains(word), "{plot}: {error}");
    }
}

#[test]
fn curves_without_a_plan_are_drawn_with_their_names() {
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
    // Without data it is an empty frame.
    assert!(curves("Nothing", "x", "y", &[]).unwrap().contains("Nothing"));
}
