//! The first line of a client.
//!
//! `background 1 DSCP CONGESTION KEY=VALUE…` asks for a background. The keys are `name`, `weight`, `direction`,
//! `between` and `zone`, the seconds by which the time of that is ahead of UTC. `job VERB JOB` changes a job of the same user; the verbs are `pause` and `resume`.

use std::ops::RangeInclusive;

use lull_cc::lull::Member;

use super::{CONGESTIONS, VERSION};
use crate::background::Choice;
use crate::hooks::Dscp;
use crate::receive::Direction;
use crate::time_window::TimeWindow;
use crate::udp::Udp;

/// A change of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobChange {
    Pause,
    Resume,
}

impl JobChange {
    const ALL: [(&str, JobChange); 2] =
        [("pause", JobChange::Pause), ("resume", JobChange::Resume)];

    pub(super) fn to_line(self, job: &str) -> String {
        let verb =
            Self::ALL.into_iter().find(|(_, change)| *change == self).map_or("", |(verb, _)| verb);
        format!("job {verb} {job}")
    }

    /// The change, and the name or the number of the job.
    pub(super) fn parse(line: &str) -> Option<(Self, &str)> {
        let (verb, job) = line.strip_prefix("job ")?.split_once(' ')?;
        let (_, change) = Self::ALL.into_iter().find(|(known, _)| *known == verb)?;
        Some((change, job))
    }
}

const WEIGHTS: RangeInclusive<u32> = 1..=Member::MAX_WEIGHT;

/// The request for a background.
///
/// # Errors
/// Why a server cannot provide it.
pub(super) fn to_line(choice: &Choice) -> Result<String, &'static str> {
    if !CONGESTIONS.iter().any(|(name, _)| *name == choice.congestion) {
        return Err(
            "it has no congestion control but 'nice' and 'lull': run it as root for others",
        );
    }
    if choice.udp != Udp::Pass {
        return Err("it does not slow UDP: leave out --udp, or run lull as root");
    }
    let dscp = match choice.dscp {
        Dscp::Le => "le",
        Dscp::None => "none",
    };
    let mut line = format!("background {VERSION} {dscp}");
    let direction = Some(choice.direction).filter(|it| *it != Direction::Both);
    let settings = [
        choice.name.as_ref().map(|name| format!(" name={name}")),
        choice.weight.map(|weight| format!(" weight={weight}")),
        direction.map(|it| format!(" direction={it}")),
        choice.hours.map(|hours| format!(" zone={} between={hours}", hours.zone())),
    ];
    let settings: String = settings.into_iter().flatten().collect();
    // A server of an older version only has Nice, and accepts no third word.
    if choice.congestion != CONGESTIONS[0].0 || !settings.is_empty() {
        line += &format!(" {}{settings}", choice.congestion);
    }
    Ok(line)
}

/// The request for a background; `None` if this version does not know it.
pub(super) fn parse(line: &str) -> Option<Choice> {
    let mut words = line.strip_prefix("background ")?.split(' ');
    words.next()?.parse().ok().filter(|&version: &u32| version == VERSION)?;
    let dscp = match words.next()? {
        "le" => Dscp::Le,
        "none" => Dscp::None,
        _ => return None,
    };
    let (congestion, parameters) = match words.next() {
        Some(name) => CONGESTIONS.into_iter().find(|(known, _)| *known == name)?,
        None => CONGESTIONS[0],
    };
    let mut choice = Choice {
        congestion: congestion.to_owned(),
        dscp,
        automatic: Some(parameters()),
        network_honours_le: false,
        name: None,
        weight: None,
        direction: Direction::Both,
        udp: Udp::Pass,
        hours: None,
        mapped_by_parent: false,
        no_receive_hook: false,
    };
    let mut zone = 0;
    for word in words {
        let (key, value) = word.split_once('=')?;
        match key {
            "name" => choice.name = Some(value.to_owned()),
            "weight" => choice.weight = Some(value.parse().ok().filter(|it| WEIGHTS.contains(it))?),
            "direction" => choice.direction = value.parse().ok()?,
            "zone" => zone = value.parse().ok()?,
            "between" => choice.hours = Some(value.parse().ok()?),
            _ => return None,
        }
    }
    choice.hours = choice.hours.map(|hours: TimeWindow| hours.in_zone(zone));
    Some(choice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_names_version_mark_and_congestion_control() {
        let request = |line| parse(line).map(|choice| (choice.dscp, choice.congestion));
        assert_eq!(request("background 1 le"), Some((Dscp::Le, "nice".to_owned())));
        assert_eq!(request("background 1 none nice"), Some((Dscp::None, "nice".to_owned())));
        assert_eq!(request("background 1 none lull"), Some((Dscp::None, "lull".to_owned())));
        for other in [
            "background 2 le",
            "background 1 ef",
            "background 1 le reno",
            "background 1 le lull lull",
            "background 1 le lull weight=0",
            "background 1 le lull weight=101",
            "background 1 le lull direction=up",
            "background 1 le lull between=2-6",
            "background 1 le lull user=root",
            "background",
            "",
            "counters",
        ] {
            assert_eq!(request(other), None, "{other}");
        }
    }

    #[test]
    fn settings_survive_the_request() {
        let lines = [
            "background 1 le",
            "background 1 none lull",
            "background 1 le nice weight=7",
            "background 1 le lull name=a.b-c weight=100 direction=receive zone=-3600 between=22:00-06:00",
        ];
        for line in lines {
            assert_eq!(to_line(&parse(line).unwrap()).unwrap(), line);
        }
    }

    #[test]
    fn requests_that_a_server_cannot_serve_are_refused() {
        let choice = parse("background 1 le lull").unwrap();
        let refused = |choice: Choice| to_line(&choice).unwrap_err();
        let other = Choice { congestion: "cubic".to_owned(), ..choice.clone() };
        assert!(refused(other).contains("'nice' and 'lull'"));
        assert!(refused(Choice { udp: Udp::Yield, ..choice }).contains("--udp"));
    }

    #[test]
    fn change_of_a_job_has_a_verb_and_a_job() {
        for change in [JobChange::Pause, JobChange::Resume] {
            assert_eq!(JobChange::parse(&change.to_line("a.b")), Some((change, "a.b")));
        }
        for other in ["job", "job pause", "job kill a", "pause a"] {
            assert_eq!(JobChange::parse(other), None, "{other}");
        }
    }
}
