//! One cell over time: the rate of each group, and the queueing delay.

use std::fs;
use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::PlotError;
use super::style::{self, Area, Drawn, GRID, INK, Key, LARGE, SMALL, colour, label, text, write};
use crate::record::{CellRecord, PhaseRecord, SeriesRecord};

/// The plot's size, in pixels.
const SIZE: (u32, u32) = (1000, 600);
/// Left and right of both panels.
const SIDES: (i32, i32) = (70, 980);
/// Top and bottom of the panel of rates.
const RATES: (i32, i32) = (122, 370);
/// Top and bottom of the panel of delays.
const DELAYS: (i32, i32) = (420, 548);
/// The background colour of every other phase.
const BAND: RGBColor = RGBColor(243, 243, 243);

/// Draws a cell whose record holds time series: rates above, queueing delay below, phases named.
///
/// # Errors
/// [`PlotError::NoSeries`] if it holds none, [`PlotError::Drawing`] if the file cannot be written.
pub fn timeline(cell: &CellRecord, title: &str, path: &Path) -> Result<(), PlotError> {
    let phases: Vec<(&PhaseRecord, &SeriesRecord)> =
        cell.phases.iter().filter_map(|phase| Some((phase, phase.series.as_ref()?))).collect();
    let (Some((first, _)), Some((last, _))) = (phases.first(), phases.last()) else {
        return Err(PlotError::NoSeries);
    };
    let view = View {
        begin: first.begin_s,
        end: last.measured_to_s,
        rate: cell.link.as_ref().map_or(1.0, |link| link.rate_mbit) * 1.08,
        delay: phases
            .iter()
            .flat_map(|(_, series)| series.queueing_ms.iter().copied())
            .fold(1.0, f64::max)
            * 1.15,
    };
    let mut names: Vec<String> = Vec::new();
    for name in phases.iter().flat_map(|(phase, _)| phase.groups.keys()) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    let svg = style::document(SIZE, |area| {
        write(area, title, (16, 22), &text(LARGE, HPos::Left, VPos::Center))?;
        let titles: Vec<String> = names.iter().map(|name| group_title(&phases, name)).collect();
        let places = style::places(&titles, (SIDES.0, 50), SIDES.0, SIDES.1);
        style::legend(area, &titles, Key::Line, &places)?;
        for (number, (phase, _)) in phases.iter().enumerate() {
            view.band(number, phase, area)?;
        }
        view.frames(area)?;
        for (phase, series) in &phases {
            view.phase(phase, series, &names, area)?;
        }
        Ok(())
    });
    let svg = svg.map_err(PlotError::drawing(path.display()))?;
    fs::write(path, svg).map_err(PlotError::drawing(path.display()))
}

/// A group's title for readers.
fn group_title(phases: &[(&PhaseRecord, &SeriesRecord)], name: &str) -> String {
    let groups = phases.iter().filter_map(|(phase, _)| phase.groups.get(name));
    let title = groups.filter_map(|group| group.title.clone()).next();
    title.unwrap_or_else(|| name.to_owned())
}

/// The positions of times, rates and delays.
struct View {
    begin: f64,
    end: f64,
    rate: f64,
    delay: f64,
}

impl View {
    fn x(&self, time: f64) -> i32 {
        let share = (time - self.begin) / (self.end - self.begin);
        SIDES.0 + (share * f64::from(SIDES.1 - SIDES.0)).round() as i32
    }

    fn y(panel: (i32, i32), value: f64, most: f64) -> i32 {
        panel.1 - ((value / most).clamp(0.0, 1.0) * f64::from(panel.1 - panel.0)).round() as i32
    }

    /// The phase's background, its name, and its measurements.
    fn band(&self, number: usize, phase: &PhaseRecord, area: &Area<'_>) -> Drawn {
        let (left, right) = (self.x(phase.begin_s), self.x(phase.measured_to_s));
        if number % 2 == 1 {
            area.draw(&Rectangle::new([(left, 68), (right, DELAYS.1)], BAND.filled()))?;
        }
        let title = phase.title.as_deref().unwrap_or(&phase.name);
        let name = (style::FONT, SMALL).into_font().style(FontStyle::Bold).color(&INK);
        write(area, title, (left + 6, 72), &name)?;
        let mut y = 88;
        for (name, group) in &phase.groups {
            let title = group.title.as_deref().unwrap_or(name);
            let words = format!("{title}: {:.2} Mbit/s", group.goodput_mbit);
            write(area, &words, (left + 6, y), &text(SMALL - 1.0, HPos::Left, VPos::Top))?;
            y += 15;
        }
        if let Some(delay) = phase.queueing {
            let words = format!("median {:.1} ms", delay.p50_ms);
            let at = (left + 6, DELAYS.0 + 4);
            write(area, &words, at, &text(SMALL - 1.0, HPos::Left, VPos::Top))?;
        }
        Ok(())
    }

    /// Axes and their texts.
    fn frames(&self, area: &Area<'_>) -> Drawn {
        let panels =
            [(RATES, self.rate, "on the link, Mbit/s"), (DELAYS, self.delay, "queueing delay, ms")];
        for (panel, most, title) in panels {
            for value in style::steps(0.0, most, if panel == RATES { 5 } else { 3 }) {
                let y = Self::y(panel, value, most);
                area.draw(&PathElement::new(vec![(SIDES.0, y), (SIDES.1, y)], GRID))?;
                let style = text(SMALL, HPos::Right, VPos::Center);
                write(area, &label(value), (SIDES.0 - 6, y), &style)?;
            }
            let upward =
                text(SMALL, HPos::Center, VPos::Center).transform(FontTransform::Rotate270);
            write(area, title, (18, (panel.0 + panel.1) / 2), &upward)?;
            let corners = [(SIDES.0, panel.0), (SIDES.0, panel.1), (SIDES.1, panel.1)];
            area.draw(&PathElement::new(corners.to_vec(), INK))?;
        }
        let below = text(SMALL, HPos::Center, VPos::Top);
        for time in style::steps(0.0, self.end - self.begin, 10) {
            let x = self.x(self.begin + time);
            area.draw(&PathElement::new(vec![(x, DELAYS.1), (x, DELAYS.1 + 4)], INK))?;
            write(area, &label(time), (x, DELAYS.1 + 7), &below)?;
        }
        write(area, "time, s", ((SIDES.0 + SIDES.1) / 2, DELAYS.1 + 25), &below)
    }

    fn phase(
        &self,
        phase: &PhaseRecord,
        series: &SeriesRecord,
        names: &[String],
        area: &Area<'_>,
    ) -> Drawn {
        let time = |at: usize| phase.begin_s + (at as f64 + 0.5) * series.interval_s;
        for (name, rates) in &series.mbit {
            let number = names.iter().position(|other| other == name).unwrap_or(0);
            let points = rates
                .iter()
                .enumerate()
                .map(|(at, rate)| (self.x(time(at)), Self::y(RATES, *rate, self.rate)));
            style::line(area, points.collect(), number, 2)?;
        }
        let points = series
            .queueing_ms
            .iter()
            .enumerate()
            .map(|(at, delay)| (self.x(time(at)), Self::y(DELAYS, *delay, self.delay)));
        let style = colour(6).stroke_width(2);
        area.draw(&PathElement::new(points.collect::<Vec<_>>(), style))
    }
}
