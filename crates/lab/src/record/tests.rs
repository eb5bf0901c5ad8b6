use std::fs;
use std::process::Command;

use serde_json::json;

use super::*;
use crate::plan::Plan;

const PLAN: &str = "id = 'p'\ntitle = 'P'\n[paper]\nsource = 'a'\nstatement = 'b'\n\
    [topology]\nrate = '10mbit'\nrtt = '20ms'\n\
    [[groups]]\nname = 'a'\nkind = 'bulk'\ncontrol = 'cubic'\nphases = ['p']\n\
    [[phases]]\nname = 'p'\nsettle = '1s'\nmeasure = '1s'\n";

fn program() -> Program {
    Program { arguments: vec!["lab".to_owned()], commit: Some("c0ffee-dirty".to_owned()) }
}

fn header() -> Header {
    let plan = Plan::parse("p.toml", PLAN, false).unwrap();
    plan.header(&program(), 3)
}

fn cell(key: &str, cpu_s: f64) -> CellRecord {
    CellRecord { key: key.to_owned(), cpu_s, ..CellRecord::default() }
}

/// As it is read from below that header.
fn measured(cell: CellRecord) -> CellRecord {
    CellRecord { commit: program().commit, ..cell }
}

#[test]
fn header_states_the_origin_of_the_record() {
    let header = header();
    let line = serde_json::to_value(Line::Header(header.clone())).unwrap();
    assert_eq!(line["line"], "header");
    for key in ["command", "seed", "plan", "plan_hash", "commit", "kernel", "cores"] {
        assert!(!line[key].is_null(), "{key}: {line}");
    }
    assert_eq!((line["seed"].as_u64(), line["plan"]["id"].as_str()), (Some(3), Some("p")));
    assert_eq!(header.plan_hash.len(), 64);
    // The name of the program's file depends on the machine.
    assert_eq!(header.command, ["lull", "lab"]);
    // That of the sources, not of the tree that this happens to run in.
    assert_eq!(header.commit.as_deref(), Some("c0ffee-dirty"));
    assert!(header.started_unix_s > 1_700_000_000);
}

#[test]
fn record_is_read_as_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/p.jsonl");
    let mut recorder = Recorder::open(&path).unwrap();
    recorder.write(&Line::Header(header())).unwrap();
    recorder.write(&Line::Cell(Box::new(cell("a", 1.0)))).unwrap();
    let failed = Failed { key: "b".into(), hash: "h".into(), error: "no".into() };
    recorder.write(&Line::Failed(failed)).unwrap();
    // The same cell again: the last run counts.
    recorder.write(&Line::Cell(Box::new(cell("a", 2.0)))).unwrap();
    let record = RecordFile::read(&path).unwrap();
    assert_eq!(
        record.headers,
        [header()].map(|h| Header { started_unix_s: record.headers[0].started_unix_s, ..h })
    );
    assert_eq!(record.cells, [measured(cell("a", 2.0))]);
    let first = fs::read_to_string(&path).unwrap().lines().next().unwrap().to_owned();
    assert!(first.starts_with("{\"line\":\"header\""), "{first}");
}

#[test]
fn link_states_packet_capture_unless_record_is_older() {
    let old = r#"{"rate_mbit":10.0,"rtt_ms":20.0,"bdp":16.5,"buffer":16.5,"queue":"droptail"}"#;
    let link: LinkRecord = serde_json::from_str(old).unwrap();
    assert_eq!(link.backend, None);
    assert_eq!(serde_json::to_string(&link).unwrap(), old);
    let new = LinkRecord { backend: Some(Backend::Packet), ..link };
    let text = serde_json::to_string(&new).unwrap();
    assert!(text.ends_with(r#","backend":"packet"}"#), "{text}");
    assert_eq!(serde_json::from_str::<LinkRecord>(&text).unwrap(), new);
}

#[test]
fn run_killed_while_writing_continues() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.jsonl");
    let mut recorder = Recorder::open(&path).unwrap();
    recorder.write(&Line::Cell(Box::new(cell("a", 1.0)))).unwrap();
    drop(recorder);
    let half = fs::read_to_string(&path).unwrap() + "{\"line\":\"cell\",\"key\":\"b";
    fs::write(&path, half).unwrap();
    assert_eq!(RecordFile::read(&path).unwrap().cells.len(), 1);
    let mut recorder = Recorder::open(&path).unwrap();
    recorder.write(&Line::Cell(Box::new(cell("c", 1.0)))).unwrap();
    let keys: Vec<String> =
        RecordFile::read(&path).unwrap().cells.into_iter().map(|cell| cell.key).collect();
    assert_eq!(keys, ["a", "c"]);
}

#[test]
fn selected_lines_stay_exactly_as_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.jsonl");
    let mut recorder = Recorder::open(&path).unwrap();
    recorder.write(&Line::Header(header())).unwrap();
    for key in ["a", "b", "c"] {
        recorder.write(&Line::Cell(Box::new(cell(key, 1.0)))).unwrap();
    }
    let lines: Vec<String> =
        fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
    recorder.retain(|line| !matches!(line, Line::Cell(cell) if cell.key == "b")).unwrap();
    // The next line is appended to it.
    recorder.write(&Line::Cell(Box::new(cell("d", 1.0)))).unwrap();
    let after = fs::read_to_string(&path).unwrap();
    let after: Vec<&str> = after.lines().collect();
    assert_eq!(after[..3], [&lines[0], &lines[1], &lines[3]]);
    assert!(after.len() == 4 && after[3].contains("\"d\""), "{after:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    recorder.retain(|_| false).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "");
}

#[test]
fn record_has_one_writer_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.jsonl");
    let mut first = Recorder::open(&path).unwrap();
    let refused = || Recorder::open(&path).unwrap_err();
    assert!(matches!(refused(), RecordError::InUse(_)), "{}", refused());
    assert!(refused().to_string().contains("another run"), "{}", refused());
    // Also after the file was replaced.
    first.retain(|_| false).unwrap();
    assert!(matches!(refused(), RecordError::InUse(_)), "{}", refused());
    drop(first);
    Recorder::open(&path).unwrap();
}

#[test]
fn invalid_record_is_rejected_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.jsonl");
    assert!(RecordFile::read(&path).unwrap().headers.is_empty());
    fs::write(&path, "{\"line\":\"failed\",\"key\":\"\",\"hash\":\"\",\"error\":\"\"}\nnonsense\n")
        .unwrap();
    let error = RecordFile::read(&path).unwrap_err().to_string();
    assert!(error.contains("p.jsonl:2") && error.contains("--fresh"), "{error}");
    let folder = RecordFile::read(std::path::Path::new("/")).unwrap_err().to_string();
    assert!(!folder.contains('\n'), "{folder}");
}

#[test]
fn quantities_are_named_as_documented() {
    let group = GroupRecord {
        goodput_mbit: 9.0,
        sent_mbit: 5.0,
        packets: 90,
        dropped: 10,
        ..GroupRecord::default()
    };
    let phase = PhaseRecord {
        name: "alone".to_owned(),
        measured_from_s: 2.0,
        measured_to_s: 5.0,
        utilisation: Some(0.5),
        groups: [("a".to_owned(), group)].into(),
        ..PhaseRecord::default()
    };
    let link = LinkRecord { rate_mbit: 10.0, ..LinkRecord::default() };
    let record = CellRecord {
        values: json!({ "flows": 8 }).as_object().unwrap().clone(),
        link: Some(link),
        phases: vec![phase],
        ..CellRecord::default()
    };
    let quantities = record.quantities();
    for (path, value) in [
        ("/flows", 8.0),
        ("/link/rate_mbit", 10.0),
        ("/goodput/a/alone", 9.0),
        ("/share/a/alone", 0.5),
        ("/packets/a/alone", 90.0),
        ("/loss/a/alone", 0.1),
        ("/utilisation/alone", 0.5),
        ("/seconds/alone", 3.0),
        ("/cpu/alone/process_s", 0.0),
    ] {
        let found = quantities.pointer(path).and_then(Value::as_f64);
        assert_eq!(found, Some(value), "{path}");
    }
    assert!(quantities.pointer("/srtt/a/alone").is_none());
}

#[test]
fn few_connections_keep_goodputs_and_many_keep_fairness() {
    let divided = |flows: &[u64]| {
        let mut group = GroupRecord::default();
        group.divide(flows.to_vec(), 2.0);
        group
    };
    let few = divided(&[1_000_000, 250_000]);
    assert_eq!(few.flows_mbit, [1.0, 4.0]);
    assert_eq!(few.fairness, Some(0.7353));
    assert_eq!(divided(&[5; MAX_FLOWS]).flows_mbit.len(), MAX_FLOWS);
    let crowd = divided(&[5; MAX_FLOWS + 1]);
    assert_eq!((crowd.flows_mbit.len(), crowd.fairness), (0, Some(1.0)));
    assert_eq!(divided(&[0, 0, 0, 7]).fairness, Some(0.25));
    assert_eq!(divided(&[0, 0]).fairness, None);
}

#[test]
fn packed_record_is_read_and_extended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.quick.jsonl");
    let mut recorder = Recorder::open(&path).unwrap();
    recorder.write(&Line::Header(header())).unwrap();
    recorder.write(&Line::Cell(Box::new(cell("a", 1.0)))).unwrap();
    drop(recorder);
    let status = Command::new("gzip").arg("-9n").arg(&path).status().unwrap();
    assert!(status.success() && !path.exists());

    let packed = RecordFile::read(&path).unwrap();
    assert_eq!((packed.headers.len(), packed.cells), (1, vec![measured(cell("a", 1.0))]));
    assert!(!path.exists(), "to read changes nothing");

    let mut recorder = Recorder::open(&path).unwrap();
    recorder.write(&Line::Cell(Box::new(cell("b", 1.0)))).unwrap();
    assert!(matches!(Recorder::open(&path), Err(RecordError::InUse(_))));
    let record = RecordFile::read(&path).unwrap();
    assert_eq!((record.headers.len(), record.cells.len()), (1, 2));

    // A continued record is packed again at the end, and continues from there the next time.
    recorder.close().unwrap();
    let files = || fs::read_dir(folder.path()).unwrap().count();
    assert!(!path.exists() && files() == 1, "{}", files());
    assert_eq!(RecordFile::read(&path).unwrap().cells.len(), 2);
    let mut recorder = Recorder::open(&path).unwrap();
    recorder.write(&Line::Cell(Box::new(cell("c", 1.0)))).unwrap();
    // After a kill before that, the new one is beside the old one, and the new one counts.
    drop(recorder);
    assert_eq!(files(), 2);
    let mut recorder = Recorder::open(&path).unwrap();
    assert_eq!(RecordFile::read(&path).unwrap().cells.len(), 3);
    recorder.retain(|_| false).unwrap();
    recorder.write(&Line::Cell(Box::new(cell("d", 1.0)))).unwrap();
    recorder.close().unwrap();
    assert_eq!((RecordFile::read(&path).unwrap().cells.len(), files()), (1, 1));

    let broken = folder.path().join("q.jsonl");
    fs::write(broken.with_extension("jsonl.gz"), "nonsense").unwrap();
    let error = RecordFile::read(&broken).unwrap_err().to_string();
    assert!(error.contains("q.jsonl.gz"), "{error}");
}

#[test]
fn unpacked_record_stays_unpacked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.jsonl");
    let mut recorder = Recorder::open(&path).unwrap();
    recorder.write(&Line::Cell(Box::new(cell("a", 1.0)))).unwrap();
    recorder.close().unwrap();
    assert!(path.exists() && fs::read_dir(folder.path()).unwrap().count() == 1);
}

#[test]
fn unused_records_are_dropped_and_others_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.jsonl");
    let mut recorder = Recorder::open(&path).unwrap();
    let of = |key: &str, hash: &str| CellRecord { hash: hash.to_owned(), ..cell(key, 1.0) };
    let mut write = |line: Line| recorder.write(&line).unwrap();
    let failed = |hash: &str| {
        Line::Failed(Failed { key: "c".into(), hash: hash.into(), error: "no".into() })
    };
    // Of another plan, and of an earlier version of this plan.
    write(Line::Header(header()));
    write(Line::Cell(Box::new(of("a repetition=1", "old"))));
    write(Line::Cell(Box::new(of("gone repetition=1", "gone"))));
    write(failed("gone"));
    // Failed first, and ran later; failed, without a later run.
    write(Line::Header(header()));
    write(failed("b"));
    write(failed("c"));
    write(Line::Cell(Box::new(of("a repetition=1", "a"))));
    // Ran again.
    write(Line::Header(header()));
    write(Line::Cell(Box::new(of("b repetition=1", "b"))));
    write(Line::Header(header()));
    write(Line::Cell(Box::new(of("b repetition=1", "b"))));
    let before = fs::read_to_string(&path).unwrap();
    let before: Vec<&str> = before.lines().collect();
    let read = RecordFile::read(&path).unwrap();
    let dropped = recorder.prune(|hash| ["a", "b", "c"].contains(&hash)).unwrap();
    assert_eq!(dropped, 3);
    let after = fs::read_to_string(&path).unwrap();
    let kept = [4, 6, 7, 10, 11].map(|at: usize| before[at]);
    assert_eq!(after.lines().collect::<Vec<_>>(), kept);
    // The results of the plan are the same as before.
    let again = RecordFile::read(&path).unwrap();
    let keys = |record: &RecordFile| -> Vec<String> {
        let own = record.cells.iter().filter(|cell| cell.hash != "gone");
        own.map(|cell| format!("{} {}", cell.key, cell.hash)).collect()
    };
    assert_eq!(keys(&again), keys(&read));
    assert_eq!(again.failed.len(), 1);
}
