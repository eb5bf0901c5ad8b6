use serde_json::json;

use super::*;
use crate::record::{GroupRecord, PhaseRecord};

/// A plan over `flows` whose cells have one phase and one group; `more` is added to it.
fn plan(more: &str) -> Plan {
    let text = format!(
        "id = 'made-up'\ntitle = 'Made up'\n[paper]\nsource = 'a'\nstatement = 'b'\n\
         [topology]\nrate = '10mbit'\nrtt = '20ms'\n\
         [[axes]]\nname = 'flows'\nvalues = [1, 2, 3, 4, 5]\n\
         [[groups]]\nname = 'a'\nkind = 'bulk'\ncontrol = 'cubic'\nphases = ['p']\n\
         [[phases]]\nname = 'p'\nsettle = '1s'\nmeasure = '1s'\n{more}"
    );
    Plan::parse("made-up.toml", &text, false).unwrap()
}

/// The record of a cell with `flows`, whose group received this many Mbit/s.
fn cell(flows: u32, repetition: u32, goodput_mbit: f64) -> CellRecord {
    let group = GroupRecord { goodput_mbit, ..GroupRecord::default() };
    let phase = PhaseRecord {
        name: "p".to_owned(),
        groups: [("a".to_owned(), group)].into(),
        ..PhaseRecord::default()
    };
    CellRecord {
        key: format!("flows={flows} repetition={repetition}"),
        values: json!({ "flows": flows }).as_object().unwrap().clone(),
        repetition,
        phases: vec![phase],
        ..CellRecord::default()
    }
}

fn check(more: &str, goodputs: &[f64]) -> Verdict {
    let text = format!("[[checks]]\nname = 'c'\nvalue = 'goodput.a.p'\n{more}");
    let cells: Vec<CellRecord> =
        goodputs.iter().zip(1..).map(|(goodput, flows)| cell(flows, 1, *goodput)).collect();
    judge(&plan(&text), &cells).verdicts.remove(0)
}

#[test]
fn check_without_share_must_hold_in_every_cell() {
    assert_eq!(check("at_least = 9", &[9.0, 9.1, 9.2]).is_met, Some(true));
    let verdict = check("at_least = 9", &[9.0, 8.5, 9.2]);
    assert_eq!((verdict.is_met, verdict.met, verdict.judged), (Some(false), 2, 3));
    assert_eq!(verdict.worst[0].key, "flows=2 repetition=1");
    assert!((verdict.worst[0].margin + 0.5).abs() < 1e-9);
    assert!(verdict.why.contains("misses"), "{}", verdict.why);
    assert_eq!(check("at_most = 9", &[9.0, 8.5, 9.2]).met, 2);
}

#[test]
fn check_with_share_may_miss_in_some_cells() {
    let five = [9.0, 9.0, 9.0, 9.0, 1.0];
    assert_eq!(check("at_least = 9\nshare = 0.8", &five).is_met, Some(true));
    assert_eq!(check("at_least = 9\nshare = 0.81", &five).is_met, Some(false));
    assert_eq!(check("at_least = 9\nshare = 0.8\nnever_below = 2", &five).is_met, Some(false));
    assert_eq!(check("at_least = 9\nshare = 0.8\nnever_below = 1", &five).is_met, Some(true));
    let beyond = check("at_most = 5\nshare = 0\nnever_above = 8.9", &five).beyond;
    assert_eq!(beyond.len(), 4);
}

#[test]
fn bound_may_differ_between_cells() {
    assert_eq!(check("at_least = '10 - flows'", &[9.0, 8.0, 7.0]).is_met, Some(true));
    assert_eq!(check("at_least = '10 - flows'", &[9.0, 8.0, 6.9]).is_met, Some(false));
}

#[test]
fn check_may_cover_some_cells_only() {
    let verdict = check("at_least = 9\nwhere = 'flows >= 2'", &[1.0, 9.0]);
    assert_eq!((verdict.is_met, verdict.judged), (Some(true), 1));
    assert_eq!(check("at_least = 9\nwhere = 'flows > 5'", &[1.0]).is_met, None);
}

#[test]
fn check_may_test_the_mean_or_the_median() {
    let goodputs = [1.0, 2.0, 30.0];
    assert_eq!(check("at_least = 11\nof = 'mean'", &goodputs).is_met, Some(true));
    assert_eq!(check("at_least = 11\nof = 'median'", &goodputs).is_met, Some(false));
    assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
    assert_eq!(median(&[]), None);
}

#[test]
fn repetitions_are_one_row_with_their_mean() {
    let plan = plan("[[metrics]]\nname = 'm'\nvalue = 'goodput.a.p * 2'\n");
    let cells = [cell(1, 1, 2.0), cell(2, 1, 5.0), cell(1, 2, 4.0)];
    let rows = judge(&plan, &cells).rows;
    let seen: Vec<_> = rows.iter().map(|row| (row.repetitions, row.metrics[0])).collect();
    assert_eq!(seen, [(2, Some(6.0)), (1, Some(10.0))]);
}

#[test]
fn metric_may_use_earlier_ones_and_names_missing_values() {
    let plan = plan(
        "[[metrics]]\nname = 'm'\nvalue = 'goodput.a.p'\n\
         [[metrics]]\nname = 'n'\nvalue = 'metric.m + 1'\n\
         [[metrics]]\nname = 'typo'\nvalue = 'goodputs.a.p'\n\
         [[checks]]\nname = 'c'\nvalue = 'metric.typo'\nat_least = 1\n",
    );
    let results = judge(&plan, &[cell(1, 1, 2.0)]);
    assert_eq!(results.rows[0].metrics, [Some(2.0), Some(3.0), None]);
    assert_eq!(results.without_value.len(), 2, "{:?}", results.without_value);
    assert!(results.without_value[0].contains("goodputs.a.p"), "{:?}", results.without_value);
    assert_eq!(results.verdicts[0].is_met, None);
}

#[test]
fn metric_may_use_other_cells_and_their_metrics() {
    let plan = plan(
        "[references.one]\nflows = 1\n\
         [[metrics]]\nname = 'm'\nvalue = 'goodput.a.p + 1'\n\
         [[metrics]]\nname = 'n'\nvalue = 'metric.m / reference.one.metric.m'\n\
         [[metrics]]\nname = 'o'\nvalue = 'reference.one.goodput.a.p'\n",
    );
    // The second repetition has no cell with one flow.
    let rows = judge(&plan, &[cell(1, 1, 3.0), cell(2, 1, 7.0), cell(2, 2, 9.0)]).rows;
    assert_eq!(rows[1].metrics, [Some(9.0), Some(2.0), Some(3.0)]);
    assert_eq!(rows[0].metrics, [Some(4.0), Some(1.0), Some(3.0)]);
}

#[test]
fn cells_are_compared_with_unjudged_reference_cells() {
    let plan = plan(
        "[references.one]\nflows = 1\n\
         [[metrics]]\nname = 'n'\nvalue = 'goodput.a.p / reference.one.goodput.a.p'\n\
         [[checks]]\nname = 'c'\nvalue = 'metric.n'\nat_least = 2\n",
    );
    let (part, others) = ([cell(2, 1, 6.0)], [cell(1, 1, 3.0), cell(3, 1, 4.0)]);
    let results = judge_beside(&plan, &part, &others);
    assert_eq!((results.rows.len(), results.rows[0].metrics[0]), (1, Some(2.0)));
    let verdict = &results.verdicts[0];
    assert_eq!((verdict.is_met, verdict.judged, verdict.lacking), (Some(true), 1, 0));
    assert!(judge(&plan, &part).verdicts[0].fails());
}

#[test]
fn repetitions_have_a_confidence_interval() {
    let plan = plan("[[metrics]]\nname = 'm'\nvalue = 'goodput.a.p'\n");
    let results = judge(&plan, &[cell(1, 1, 1.0), cell(1, 2, 3.0), cell(2, 1, 5.0)]);
    // 12.706 · sqrt(2 / 2).
    assert_eq!(results.rows[0].intervals, [Some(12.706)]);
    assert_eq!(results.rows[1].intervals, [None]);
    let told: Vec<_> = results.table(&plan).rows.into_iter().map(|row| row.metrics).collect();
    assert_eq!(told[0], [Some("2.000 ± 12.7".to_owned())]);
    assert_eq!(told[1], [Some("5.000".to_owned())]);
}

#[test]
fn missing_value_leaves_a_check_undecided() {
    let open = "value = 'goodput.a.p if flows != 2 else latency.a.p.mean_ms'";
    let judged = |demand: &str| {
        let text = format!("[[checks]]\nname = 'c'\n{open}\n{demand}");
        let cells = [cell(1, 1, 9.0), cell(2, 1, 9.0), cell(3, 1, 8.0)];
        judge(&plan(&text), &cells).verdicts.remove(0)
    };
    let verdict = judged("at_least = 8");
    assert_eq!((verdict.is_met, verdict.judged), (None, 2));
    assert!(verdict.why.ends_with("1 without a value, such as flows=2 repetition=1"));
    assert_eq!(judged("at_least = 9").is_met, Some(false));
}

#[test]
fn slope_check_uses_its_confidence_interval() {
    let slope = "of = 'slope'\nover = 'flows'\n";
    let upward = [1.0, 2.0, 2.6, 3.0, 3.3];
    let verdict = check(&format!("{slope}at_most = 0"), &upward);
    assert_eq!((verdict.is_met, verdict.judged), (Some(false), 1));
    assert!(verdict.why.contains("(over flows)"), "{verdict:?}");
    assert_eq!(check(&format!("{slope}at_least = 1"), &upward).is_met, Some(true));
    // A difference that may be chance is not a trend.
    let verdict = check(&format!("{slope}at_most = 0"), &[1.0, 3.0, 1.5, 3.0, 1.6]);
    assert_eq!(verdict.is_met, Some(true), "{verdict:?}");
    assert_eq!(check(&format!("{slope}at_most = 0"), &[1.0, 2.0]).is_met, None);
}

#[test]
fn slope_is_shown_and_its_lenient_bound_judged() {
    let slope = "of = 'slope'\nover = 'flows'\nat_most = 0";
    // One Mbit/s each time that the flows double, within the uncertainty.
    let verdict = check(slope, &[1.0, 2.0, 2.6, 3.0, 3.3]);
    let worst = &verdict.worst[0];
    let half = worst.half_width.unwrap();
    assert!((worst.value - 0.9948).abs() < 1e-3 && (0.01..0.1).contains(&half), "{worst:?}");
    assert!((worst.margin - (half - worst.value)).abs() < 1e-9, "{worst:?}");
    assert!(verdict.why.starts_with("0.9948 ± 0.0247 misses 0 by 0.9701"), "{}", verdict.why);
    assert_eq!(verdict.range.unwrap().low, worst.value);
    // A rising slope that is not certain is shown unchanged, and met.
    let verdict = check(slope, &[1.0, 3.0, 1.5, 3.0, 1.6]);
    assert!(verdict.worst[0].value > 0.0 && verdict.worst[0].margin > 0.0, "{verdict:?}");
    assert_eq!(verdict.is_met, Some(true));
    // A value that is not a slope has no interval to judge.
    assert_eq!(check("at_most = 0", &[1.0, 2.0]).worst[0].half_width, None);
}

#[test]
fn certain_mean_is_judged_by_its_strict_bound() {
    let sure = |demand: &str, cells: &[CellRecord]| {
        let text = format!("[[checks]]\nname = 'c'\nvalue = 'goodput.a.p'\nof = 'sure'\n{demand}");
        judge(&plan(&text), cells).verdicts.remove(0)
    };
    let three = [cell(1, 1, 1.0), cell(1, 2, 2.0), cell(1, 3, 3.0)];
    // 2 ± 4.303 · 1 / √3.
    let worst = &sure("at_most = 4", &three).worst[0];
    assert!((worst.value - 2.0).abs() < 1e-9 && (worst.half_width.unwrap() - 2.4843).abs() < 1e-3);
    assert_eq!(sure("at_most = 4.4", &three).is_met, Some(false));
    assert_eq!(sure("at_most = 4.5", &three).is_met, Some(true));
    assert_eq!(sure("at_least = -0.4", &three).is_met, Some(false));
    assert_eq!(sure("at_most = 4", &three[..1]).is_met, None, "one is no interval");
}

#[test]
fn each_combination_must_be_certain() {
    let verdict = |cells: &[CellRecord]| {
        let text = "[[checks]]\nname = 'c'\nvalue = 'goodput.a.p'\nof = 'sure'\nat_least = 0\n";
        judge(&plan(text), cells).verdicts.remove(0)
    };
    let clear = [cell(1, 1, 90.0), cell(1, 2, 91.0), cell(1, 3, 92.0)];
    // Its mean is higher by one, which may be chance.
    let close = [cell(2, 1, 3.0), cell(2, 2, -2.0), cell(2, 3, 2.0)];
    assert_eq!(verdict(&clear).is_met, Some(true));
    let both = verdict(&[clear.clone(), close].concat());
    assert_eq!((both.is_met, both.met, both.judged), (Some(false), 1, 2));
    assert_eq!((both.worst[0].key.as_str(), both.worst[0].value), ("flows=2", 1.0));
    // A single measurement is not enough to be sure.
    let partial = verdict(&[&clear[..], &[cell(2, 1, 9.0)]].concat());
    assert_eq!((partial.is_met, partial.judged), (None, 1));
    assert!(partial.why.ends_with("1 without an interval, such as flows=2"), "{}", partial.why);
}

#[test]
fn certain_check_may_use_many_numbers_of_a_cell() {
    let verdict = |of: &str| {
        let value = "[goodput.a.p, goodput.a.p + 1, goodput.a.p + 2]";
        let text =
            format!("[[checks]]\nname = 'c'\nvalue = '{value}'\nof = '{of}'\nat_least = 0.5\n");
        judge(&plan(&text), &[cell(1, 1, 1.0), cell(1, 2, 1.0)]).verdicts.remove(0)
    };
    // 2 ± 2.571 · √(0.8 / 6) of six numbers.
    let worst = &verdict("sure").worst[0];
    assert!((worst.value - 2.0).abs() < 1e-9, "{worst:?}");
    assert!((worst.half_width.unwrap() - 0.9388).abs() < 1e-3, "{worst:?}");
    assert_eq!(verdict("sure").is_met, Some(true));
    assert_eq!((verdict("each").is_met, verdict("each").lacking), (None, 2), "a list is no number");
}

#[test]
fn check_may_test_combinations() {
    let plan =
        plan("[[checks]]\nname = 'c'\nvalue = 'goodput.a.p'\nat_least = 5\nof = 'combination'\n");
    let cells = [cell(1, 1, 4.0), cell(1, 2, 7.0), cell(2, 1, 4.0), cell(2, 2, 5.0)];
    let results = judge(&plan, &cells);
    let verdict = &results.verdicts[0];
    assert_eq!((verdict.is_met, verdict.judged, verdict.met), (Some(false), 2, 1));
    assert_eq!((verdict.worst[0].key.as_str(), verdict.worst[0].value), ("flows=2", 4.5));
    let missed: Vec<usize> = results.rows.iter().map(|row| row.missed.len()).collect();
    assert_eq!(missed, [0, 1]);
}

#[test]
fn row_names_the_checks_that_its_cells_miss() {
    let text = "[[checks]]\nname = 'c'\nvalue = 'goodput.a.p'\nat_least = 5\n";
    let rows = judge(&plan(text), &[cell(1, 1, 9.0), cell(2, 1, 1.0)]).rows;
    assert_eq!(rows.iter().map(|row| row.missed.len()).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn cells_with_a_late_emulator_are_named() {
    let late = |flows, p99_ms| {
        let mut cell = cell(flows, 1, 5.0);
        cell.phases[0].timing_error = Some(lull_emulator::Spread { p99_ms, ..Default::default() });
        cell
    };
    let disturbed = judge(&plan(""), &[late(1, 0.2), late(2, 1.5), late(3, 2.5)]).disturbed;
    let keys: Vec<&str> = disturbed.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["flows=3 repetition=1", "flows=2 repetition=1"]);
}

#[test]
fn ratio_of_means_differs_from_mean_of_ratios() {
    // 2 / 1, 8 / 4 and 3 / 9: their mean is 1.44.
    let per = "per = 'flows ** 2'\nat_least = 1";
    let goodputs = [2.0, 8.0, 3.0];
    let each = check(per, &goodputs);
    assert_eq!((each.met, each.judged), (2, 3));
    assert!((each.worst[0].value - 3.0 / 9.0).abs() < 1e-9);
    let mean = check(&format!("of = 'mean'\n{per}"), &goodputs);
    assert!((mean.worst[0].value - 13.0 / 14.0).abs() < 1e-9, "{mean:?}");
    assert_eq!((mean.is_met, mean.judged), (Some(false), 1));
}
