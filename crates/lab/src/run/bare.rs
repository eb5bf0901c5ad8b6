//! Cells without a network: programs that report their results.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use serde_json::Value;

use super::order::{CellError, Order};
use super::process::{read, wait};
use crate::plan::{Group, Phase, Scenario};
use crate::record::{GroupRecord, PhaseRecord};
use lull_emulator::traffic::{TrafficError, Work, without_folders};

/// Runs the programs of each phase, one after the other.
pub(super) fn phases(order: &Order, scenario: &Scenario) -> Result<Vec<PhaseRecord>, CellError> {
    let phase = |phase: &Phase| {
        let limit = Instant::now() + phase.duration();
        let own = scenario.groups.iter().filter(|group| group.phases.contains(&phase.name));
        let groups = own.map(|group| {
            let report = run(order, group, limit)?;
            let record = GroupRecord {
                title: group.title.clone(),
                count: group.count,
                report: Some(report),
                ..GroupRecord::default()
            };
            Ok((group.name.clone(), record))
        });
        Ok(PhaseRecord {
            name: phase.name.clone(),
            title: phase.title.clone(),
            groups: groups.collect::<Result<_, CellError>>()?,
            ..PhaseRecord::default()
        })
    };
    scenario.phases.iter().map(phase).collect()
}

/// Runs a program to its end; returns its report.
fn run(order: &Order, group: &Group, limit: Instant) -> Result<Value, CellError> {
    let Some(Work::Command { program, .. }) = group.kind.work() else {
        return Err(CellError::Scenario(format!("'{}' is not a program", group.name)));
    };
    let (name, arguments) = program.split_first().expect("a group has a program");
    let failed = |why: String| TrafficError::Failed {
        group: group.name.clone(),
        program: name.clone(),
        why,
    };
    let lull = order.lull.as_deref().unwrap_or(Path::new("lull"));
    let data = std::path::absolute(&order.data).unwrap_or_else(|_| order.data.clone());
    let mut command = Command::new(name);
    // There is no container that would end the children of a cell.
    lull_emulator::end_with_parent(&mut command);
    let mut child = command
        .args(arguments)
        .env("LULL", lull)
        .env("LULL_DATA", &data)
        .env("LULL_SEED", order.seed.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| TrafficError::Program {
            group: group.name.clone(),
            program: name.clone(),
            source,
        })?;
    let (ended, said, errors) = thread::scope(|scope| {
        let output = child.stdout.take().map(|pipe| scope.spawn(|| read(pipe)));
        let errors = child.stderr.take().map(|pipe| scope.spawn(|| read(pipe)));
        let ended = wait(&mut child, limit);
        let text = |thread: Option<thread::ScopedJoinHandle<'_, String>>| {
            thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
        };
        (ended, text(output), text(errors))
    });
    if let Err(why) = ended {
        let last = errors.lines().rfind(|line| !line.trim().is_empty());
        return Err(failed(last.map_or_else(|| why.to_string(), str::to_owned)).into());
    }
    let report = serde_json::from_str(&said).ok().filter(Value::is_object);
    let report = report.ok_or_else(|| failed("its output is not a JSON object".to_owned()))?;
    Ok(without_folders(report, &[("LULL_DATA".to_owned(), data.display().to_string())]))
}
