//! The score as a whole, with cells that are quick to simulate.

use super::*;

fn jobs(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).unwrap()
}

/// The cells of the slowest link of a group.
fn slow(group: Group) -> Vec<(Group, Cell)> {
    let cells = group.cells(Set::Tuned, 7).into_iter().map(|cell| (group, cell));
    let slowest = cells.clone().map(|(_, cell)| cell.network.mbit).min().unwrap();
    cells.filter(|(_, cell)| cell.network.mbit == slowest).collect()
}

fn scores(cells: &[(Group, Cell)], schemes: &[Scheme], threads: usize) -> Vec<CellScore> {
    score_cells(cells, (schemes, &[]), &Traces::new(), jobs(threads), &|_| {})
}

#[test]
fn table_has_a_line_per_group_and_controller() {
    let settings = Settings {
        groups: vec![Group::Crowd, Group::Shallow],
        schemes: vec![Scheme::None, Scheme::Lull],
        set: Set::Tuned,
        seeds: 1,
        jobs: jobs(2),
        data: None,
        without: vec![],
        judge: false,
    };
    let cells: Vec<_> = settings.groups.iter().flat_map(|&group| slow(group)).collect();
    let report = report(&settings, vec![7], scores(&cells, &settings.schemes, 2));
    let text = table(&report, false);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "set tuned, seeds 7");
    let names = |line: &&str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let shown: Vec<String> = lines[2..].iter().map(names).collect();
    assert_eq!(shown, ["crowd none", "crowd lull", "shallow none", "shallow lull"]);
    assert_eq!(table(&report, true).lines().count(), lines.len() + report.cells.len());
}

#[test]
fn score_does_not_depend_on_the_number_of_threads() {
    let cells = slow(Group::Bulk);
    let schemes = [Scheme::Nice, Scheme::Lull];
    let one = scores(&cells, &schemes, 1);
    assert_eq!(one.len(), 2 * cells.len());
    assert_eq!(one, scores(&cells, &schemes, 3));
}

#[test]
fn foreground_without_background_keeps_everything() {
    for group in [Group::Bulk, Group::Crowd, Group::Requests, Group::Udp] {
        for score in scores(&slow(group), &[Scheme::None], 2) {
            assert_eq!(score.kept, Some(1.0), "{group}: {}", score.cell);
            assert!(score.reaped.is_none_or(|reaped| reaped == 0.0), "{group}: {}", score.cell);
            assert!(score.mean.is_none_or(|mean| mean == 1.0), "{group}: {}", score.cell);
        }
    }
}

#[test]
fn connections_without_sharing_take_more() {
    let cells = slow(Group::Bulk);
    let many: Vec<_> = cells.into_iter().filter(|(_, cell)| cell.connections == 64).collect();
    let kept = |without: &[AblatedPart]| {
        let settings = (&[Scheme::Lull][..], without);
        let scores = score_cells(&many, settings, &Traces::new(), jobs(2), &|_| {});
        scores.iter().filter_map(|score| score.kept).sum::<f64>() / many.len() as f64
    };
    let (whole, alone) = (kept(&[]), kept(&[AblatedPart::Sharing]));
    assert!(alone < 0.9 * whole, "{alone} of {whole}");
    for part in ["sharing", "host-foreground", "memory", "trains", "emptying-round"] {
        assert_eq!(part.parse::<AblatedPart>().unwrap().name(), part);
    }
}

#[test]
fn cubic_background_keeps_less_than_nice() {
    let cells = slow(Group::Bulk);
    let median = |scheme| {
        let scores = scores(&cells, &[scheme], 2);
        Line::new(Group::Bulk, scheme, &scores.iter().collect::<Vec<_>>()).kept.unwrap().median
    };
    let (cubic, nice) = (median(Scheme::Cubic), median(Scheme::Nice));
    assert!(cubic < 0.9 * nice, "cubic {cubic}, nice {nice}");
}

#[test]
fn missing_trace_names_its_file_and_the_option() {
    let folder = tempfile::tempdir().unwrap();
    assert!(!has_data(Set::Tuned, Some(folder.path())));
    let cells: Vec<_> = Group::Recorded.cells(Set::Tuned, 7);
    let cells: Vec<_> = cells.into_iter().map(|cell| (Group::Recorded, cell)).collect();
    let error = traces(&cells, Some(folder.path())).unwrap_err().to_string();
    assert!(error.contains("wifi4.trace.gz") && error.contains("--data"), "{error}");
}

#[test]
fn targets_are_judged_with_nice_and_cubic() {
    let settings = Settings {
        groups: vec![Group::Lan],
        schemes: vec![Scheme::Nice, Scheme::Lull],
        set: Set::Tuned,
        seeds: 1,
        jobs: jobs(2),
        data: None,
        without: vec![],
        judge: true,
    };
    let idle = |(_, cell): &(Group, Cell)| cell.foreground == Foreground::None;
    let cells: Vec<_> = slow(Group::Lan).into_iter().filter(idle).collect();
    let mut all = scores(&cells, &settings.schemes, 2);
    let report = report(&settings, vec![7], all.clone());
    all.extend(scores(&cells, &[Scheme::Cubic], 2));
    let verdicts = targets::verdicts(&all, &report.lines);
    let names: Vec<&str> =
        verdicts.iter().map(|verdict| verdict.target.split(',').next().unwrap()).collect();
    assert_eq!(names, ["idle LAN", "groups not worse than Nice on both sides"]);
    let text = verdict_table(&verdicts, true);
    assert_eq!(text.lines().count(), 1 + verdicts.len() + verdicts[0].misses.len(), "{text}");
}
