//! The reports of replicas, and those of relays on the replicas below them.

use core::time::Duration;

use lull_cc::Bytes;

use super::WireError;
use super::cursor::{Reader, Writer};
use crate::message::{BelowReport, Delivered, MAX_EXCEPT, Report, Stock};

const EXCEPT: (&str, usize) = ("except", MAX_EXCEPT);

/// The fewest bytes of a report on a replica below a relay.
pub(super) const SHORTEST_BELOW: usize = 4 + 4 + 1 + 8 + 8 + 4 + 8 + 1;

pub(super) fn write_below(to: &mut Writer<'_>, one: &BelowReport) -> Result<(), WireError> {
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
        write(to, report)
    })
}

pub(super) fn read_below(from: &mut Reader<'_>) -> Result<BelowReport, WireError> {
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
        Ok((age, read(from)?))
    })?;
    let delivered = Delivered { up_to, except };
    Ok(BelowReport { replica, relay, connected, committed, delivered, waiting, report })
}

pub(super) fn write(to: &mut Writer<'_>, report: &Report) -> Result<(), WireError> {
    let Report { reflects, lasts, skew, stock } = report;
    to.option(reflects.as_ref(), |to, stamp| {
        to.wall(*stamp);
        Ok(())
    })?;
    to.option(lasts.as_ref(), |to, time| {
        to.u64(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        Ok(())
    })?;
    to.option(skew.as_ref(), |to, (least, most)| {
        to.i64(*least);
        to.i64(*most);
        Ok(())
    })?;
    let Stock {
        objects,
        valid_objects,
        bytes,
        valid_bytes,
        unsubscribed_objects,
        unsubscribed_bytes,
    } = stock;
    for count in [
        *objects,
        *valid_objects,
        bytes.0,
        valid_bytes.0,
        *unsubscribed_objects,
        unsubscribed_bytes.0,
    ] {
        to.u64(count);
    }
    Ok(())
}

pub(super) fn read(from: &mut Reader<'_>) -> Result<Report, WireError> {
    let reflects = from.option("reflects", |from| from.wall("reflects"))?;
    let lasts = from.option("lasts", |from| from.u64("lasts").map(Duration::from_nanos))?;
    let skew = from.option("skew", |from| Ok((from.i64("least")?, from.i64("most")?)))?;
    let mut count = || from.u64("count");
    let (objects, valid_objects) = (count()?, count()?);
    let (bytes, valid_bytes) = (Bytes(count()?), Bytes(count()?));
    let (unsubscribed_objects, unsubscribed_bytes) = (count()?, Bytes(count()?));
    let stock = Stock {
        objects,
        valid_objects,
        bytes,
        valid_bytes,
        unsubscribed_objects,
        unsubscribed_bytes,
    };
    Ok(Report { reflects, lasts, skew, stock })
}
