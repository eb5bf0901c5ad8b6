//! Lines and bars over the values of an axis.

use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::data::{Panel, Point, values};
use super::style::{
    self, Area, Drawn, GRID, INK, Key, LARGE, MIDDLE, SMALL, colour, label, text, width, write,
};
use super::{Figure, PlotError};
use crate::plan::{Plan, Plot, PlotKind};

/// A panel's size, in pixels.
const PANEL: (u32, u32) = (380, 300);
/// Panels beside each other.
const COLUMNS: usize = 3;
/// Room above the panels: title and legend.
const HEAD: u32 = 64;

/// Draws a plot.
pub(super) fn draw(plan: &Plan, plot: &Plot, panels: &[Panel]) -> Result<Figure, PlotError> {
    let columns = panels.len().min(COLUMNS);
    let rows = panels.len().div_ceil(columns);
    let least = width(&plot.title, LARGE).max(420) as u32 + 40;
    let across = (PANEL.0 * columns as u32).max(least);
    let size = (across, HEAD + PANEL.1 * rows as u32);
    let svg = style::document(size, |area| {
        let title = text(LARGE, HPos::Left, VPos::Center);
        write(area, &plot.title, (16, 20), &title)?;
        let names: Vec<String> =
            panels[0].series.iter().map(|series| series.name.clone()).collect();
        if names.len() > 1 {
            let own =
                plot.series.as_ref().and_then(|name| plan.axes.iter().find(|a| a.name == *name));
            let heading = own.map_or(String::new(), |axis| format!("{}:", axis.title()));
            write(area, &heading, (16, 46), &text(SMALL, HPos::Left, VPos::Center))?;
            let key = match plot.kind {
                PlotKind::Lines => Key::Line,
                PlotKind::Bars => Key::Bar,
            };
            style::legend(area, &names, key, (28 + width(&heading, SMALL), 46))?;
        }
        let scale = Scale::of(plot, panels);
        let (_, below) = area.split_vertically(HEAD);
        for (panel, place) in panels.iter().zip(below.split_evenly((rows, columns))) {
            draw_panel(plan, plot, panel, &scale, &place)?;
        }
        Ok(())
    });
    Ok(Figure {
        name: plot.name.clone(),
        title: plot.title.clone(),
        width: size.0,
        height: size.1,
        svg: svg.map_err(PlotError::drawing(&plot.name))?,
    })
}

/// The upward axis, the same in all panels.
struct Scale {
    low: f64,
    high: f64,
    is_log: bool,
}

impl Scale {
    fn of(plot: &Plot, panels: &[Panel]) -> Self {
        let points = || {
            let series = panels.iter().flat_map(|panel| &panel.series);
            series.flat_map(|series| series.points.iter().flatten())
        };
        let level = plot.level.into_iter();
        let high = points().map(|p| p.high).chain(level.clone()).fold(f64::MIN, f64::max);
        let low = points().map(|p| p.low).chain(level).fold(f64::MAX, f64::min);
        if plot.log && low > 0.0 {
            return Scale { low: low.log10() - 0.1, high: high.log10() + 0.1, is_log: true };
        }
        // Bars and shares are read from zero.
        let low = low.min(0.0);
        let room = (high - low).max(1e-9) * 0.08;
        Scale { low: if low < 0.0 { low - room } else { 0.0 }, high: high + room, is_log: false }
    }

    /// Where a value is between bottom (0) and top (1).
    fn place(&self, value: f64) -> f64 {
        let value = if self.is_log { value.max(1e-12).log10() } else { value };
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// Where lines of the grid go, and what stands beside them.
    fn ticks(&self) -> Vec<(f64, String)> {
        let steps = if self.is_log {
            (self.low.floor() as i32..=self.high.ceil() as i32)
                .flat_map(|power| [1.0, 2.0, 5.0].map(|factor| factor * 10f64.powi(power)))
                .filter(|value| (self.low..=self.high).contains(&value.log10()))
                .collect()
        } else {
            style::steps(self.low, self.high, 5)
        };
        steps.into_iter().map(|value| (value, label(value))).collect()
    }
}

/// The rectangle that data are drawn in.
struct Frame {
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
}

impl Frame {
    fn y(&self, share: f64) -> i32 {
        self.bottom - (share * f64::from(self.bottom - self.top)).round() as i32
    }

    /// The middle of the n-th of `count` equal parts.
    fn x(&self, number: f64, count: usize) -> i32 {
        let part = f64::from(self.right - self.left) / count as f64;
        self.left + ((number + 0.5) * part).round() as i32
    }
}

fn draw_panel(plan: &Plan, plot: &Plot, panel: &Panel, scale: &Scale, area: &Area<'_>) -> Drawn {
    let (across, down) = area.dim_in_pixel();
    let frame = Frame { left: 62, right: across as i32 - 14, top: 30, bottom: down as i32 - 52 };
    let title = plot.panels.as_ref().map_or(String::new(), |name| {
        let axis = plan.axes.iter().find(|axis| axis.name == *name);
        format!("{} {}", axis.map_or(name.as_str(), |axis| axis.title()), panel.name)
    });
    write(area, &title, (frame.left, 16), &text(MIDDLE, HPos::Left, VPos::Center))?;
    for (value, words) in scale.ticks() {
        let y = frame.y(scale.place(value));
        area.draw(&PathElement::new(vec![(frame.left, y), (frame.right, y)], GRID))?;
        write(area, &words, (frame.left - 6, y), &text(SMALL, HPos::Right, VPos::Center))?;
    }
    let upward = text(SMALL, HPos::Center, VPos::Center).transform(FontTransform::Rotate270);
    write(area, &plot.y_title, (14, (frame.top + frame.bottom) / 2), &upward)?;
    let names = values(plan, Some(&plot.x));
    let centred = text(SMALL, HPos::Center, VPos::Top);
    for (number, name) in names.iter().enumerate() {
        write(area, name, (frame.x(number as f64, names.len()), frame.bottom + 7), &centred)?;
    }
    let axis = plan.axes.iter().find(|axis| axis.name == plot.x);
    let words = axis.map_or(plot.x.as_str(), |axis| axis.title());
    write(area, words, ((frame.left + frame.right) / 2, frame.bottom + 27), &centred)?;
    if let Some(level) = plot.level {
        let y = frame.y(scale.place(level));
        let style = INK.stroke_width(1);
        area.draw(&DashedPathElement::new(vec![(frame.left, y), (frame.right, y)], 4, 3, style))?;
        let words = plot.level_title.as_deref().unwrap_or("");
        write(
            area,
            words,
            (frame.right - 2, y - 3),
            &text(SMALL - 1.0, HPos::Right, VPos::Bottom),
        )?;
    }
    let corners =
        [(frame.left, frame.top), (frame.left, frame.bottom), (frame.right, frame.bottom)];
    area.draw(&PathElement::new(corners.to_vec(), INK))?;
    match plot.kind {
        PlotKind::Bars => draw_bars(panel, scale, &frame, area),
        PlotKind::Lines => draw_lines(panel, scale, &frame, area),
    }
}

/// A range, where there is more than one cell.
fn draw_range(point: Point, x: i32, scale: &Scale, frame: &Frame, area: &Area<'_>) -> Drawn {
    if point.count < 2 {
        return Ok(());
    }
    let (low, high) = (frame.y(scale.place(point.low)), frame.y(scale.place(point.high)));
    area.draw(&PathElement::new(vec![(x, low), (x, high)], INK.stroke_width(1)))?;
    for y in [low, high] {
        area.draw(&PathElement::new(vec![(x - 3, y), (x + 3, y)], INK.stroke_width(1)))?;
    }
    Ok(())
}

fn draw_bars(panel: &Panel, scale: &Scale, frame: &Frame, area: &Area<'_>) -> Drawn {
    let count = panel.series.first().map_or(0, |series| series.points.len());
    let part = f64::from(frame.right - frame.left) / count.max(1) as f64;
    let bar = (part * 0.8 / panel.series.len() as f64).max(2.0);
    for (number, series) in panel.series.iter().enumerate() {
        for (at, point) in series.points.iter().enumerate() {
            let Some(point) = point else { continue };
            let middle = f64::from(frame.x(at as f64, count));
            let offset = (number as f64 - panel.series.len() as f64 / 2.0) * bar;
            let left = (middle + offset).round() as i32;
            let right = (middle + offset + bar * 0.92).round() as i32;
            let zero = frame.y(scale.place(if scale.is_log { 0.0 } else { 0.0f64.max(scale.low) }));
            let corners = [(left, frame.y(scale.place(point.mean))), (right, zero)];
            area.draw(&Rectangle::new(corners, colour(number).filled()))?;
            draw_range(*point, (left + right) / 2, scale, frame, area)?;
        }
    }
    Ok(())
}

fn draw_lines(panel: &Panel, scale: &Scale, frame: &Frame, area: &Area<'_>) -> Drawn {
    for (number, series) in panel.series.iter().enumerate() {
        let count = series.points.len();
        // Beside each other, so that ranges do not hide each other.
        let shift = (number as i32 - panel.series.len() as i32 / 2) * 5;
        let placed: Vec<(i32, Point)> = series
            .points
            .iter()
            .enumerate()
            .filter_map(|(at, point)| Some((frame.x(at as f64, count) + shift, (*point)?)))
            .collect();
        let points = placed.iter().map(|(x, point)| (*x, frame.y(scale.place(point.mean))));
        let points: Vec<(i32, i32)> = points.collect();
        if points.len() > 1 {
            style::line(area, points.clone(), number, 2)?;
        }
        for ((x, point), at) in placed.iter().zip(points) {
            draw_range(*point, *x, scale, frame, area)?;
            area.draw(&Circle::new(at, 4, colour(number).filled()))?;
        }
    }
    Ok(())
}
