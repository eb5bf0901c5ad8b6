//! The reports of relays on the replicas below them.

use core::time::Duration;

use super::WireError;
use super::control::{read_report, write_report};
use super::cursor::{Reader, Writer};
use crate::message::{BelowReport, Delivered, MAX_EXCEPT};

const EXCEPT: (&str, usize) = ("except", MAX_EXCEPT);

/// The fewest bytes of one.
pub(super) const SHORTEST: usize = 4 + 4 + 1 + 8 + 8 + 4 + 8 + 1;

pub(super) fn write(to: &mut Writer<'_>, one: &BelowReport) -> Result<(), WireError> {
    let BelowReport { replica, relay, connected, committed, delivered, waiting, report } = one;
    to.replica(*replica);
    to.replica(*relay);
    to.flag(*connected);
    to.sequence(*committed);
    to.sequence(delivered.up_to);
    to.list(EXCEPT, &delivered.except, |to, sequence| {
        to.sequence(*sequence);
        Ok(())
    })?;
    to.u64(*waiting);
    to.option(report.as_ref(), |to, (age, report)| {
        to.u64(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX));
        write_report(to, report)
    })
}

pub(super) fn read(from: &mut Reader<'_>) -> Result<BelowReport, WireError> {
    let (replica, relay) = (from.replica("replica")?, from.replica("relay")?);
    let connected = from.flag("connected")?;
    let (committed, up_to) = (from.sequence("committed")?, from.sequence("up to")?);
    let except = from.list(EXCEPT, 8, |from| from.sequence("except"))?;
    if up_to > committed {
        return Err(WireError::Value("up to"));
    }
    if !except.is_sorted_by(|one, next| one < next) || except.last() > Some(&up_to) {
        return Err(WireError::Value("except"));
    }
    let waiting = from.u64("waiting")?;
    let report = from.option("report", |from| {
        let age = Duration::from_nanos(from.u64("age")?);
        Ok((age, read_report(from)?))
    })?;
    let delivered = Delivered { up_to, except };
    Ok(BelowReport { replica, relay, connected, committed, delivered, waiting, report })
}
