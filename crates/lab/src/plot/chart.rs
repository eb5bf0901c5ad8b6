//! Lines and bars over the values of an axis.

use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};
use serde_json::Value;

use super::data::{Panel, Point, values};
use super::style::{
    self, Area, Drawn, GRID, INK, Key, LARGE, MIDDLE, SMALL, colour, label, text, width, write,
};
use super::{Figure, PlotError};
use crate::plan::{Plan, Plot, PlotKind, Spacing};

/// A panel's size in pixels, if nothing needs more room.
const PANEL: (i32, i32) = (380, 300);
/// The width that panels beside each other share.
const ACROSS: i32 = 3 * PANEL.0;
/// The least width of a plot.
const MIN_WIDTH: i32 = 460;
/// Room above the panels' frames, and right of them.
const TOP: i32 = 30;
const RIGHT: i32 = 14;
/// Room below the panels' frames, for a line of values and the axis's title.
const BELOW: i32 = 52;
/// The longest title of a level that is written beside the frame, in pixels.
const WIDEST_LEVEL: i32 = 90;
/// The least width of a bar.
const BAR: f64 = 5.0;
/// The height of a line of small text.
const LINE: i32 = 15;
/// The length of an arrow, and half the width of its head.
const ARROW: (i32, i32) = (14, 4);
/// The explanation of arrows.
const ARROWS: &str =
    "↓ a mean that is not above zero: the arrow begins where its 95 % interval ends";
/// The margin before the first and after the last value of an axis of numbers.
const MARGIN: f64 = 0.04;

/// The layout. Texts have the room that they need: titles and legends continue on another line, and panels
/// become wider. If that is not enough, values are written vertically below the axis.
struct Layout {
    title: Vec<String>,
    heading: String,
    names: Vec<String>,
    legend: Vec<(i32, i32)>,
    /// Room above the panels.
    head: i32,
    columns: usize,
    rows: usize,
    panel: (i32, i32),
    /// Room left of the panels' frames, right of them and below them.
    left: i32,
    right: i32,
    below: i32,
    /// The values of the axis from left to right, and their positions between the frame's sides.
    values: Vec<String>,
    places: Vec<f64>,
    is_upright: bool,
    /// An additional note of the figure.
    note: Option<&'static str>,
}

/// The positions of the axis's values, from left (0) to right (1).
fn places(plan: &Plan, plot: &Plot, count: usize) -> Vec<f64> {
    let even = || (0..count).map(|number| (number as f64 + 0.5) / count as f64).collect();
    let of = |number: f64| if plot.spacing == Spacing::Log { number.log10() } else { number };
    let axis = plan.axes.iter().find(|axis| axis.name == plot.x);
    let numbers: Vec<f64> = match axis.filter(|_| plot.spacing != Spacing::Even) {
        Some(axis) => axis.values.iter().filter_map(Value::as_f64).map(of).collect(),
        None => return even(),
    };
    let low = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let span = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max) - low;
    if numbers.len() != count || span <= 0.0 {
        return even();
    }
    numbers.iter().map(|number| MARGIN + (number - low) / span * (1.0 - 2.0 * MARGIN)).collect()
}

impl Layout {
    fn of(plan: &Plan, plot: &Plot, panels: &[Panel], scale: &Scale) -> Self {
        let widest = |texts: &mut dyn Iterator<Item = &String>| {
            texts.map(|words| width(words, SMALL)).max().unwrap_or(0)
        };
        let values = values(plan, Some(&plot.x));
        let value = widest(&mut values.iter());
        let left = (widest(&mut scale.ticks().iter().map(|(_, words)| words)) + 32).max(62);
        let level = plot.level.and(plot.level_title.as_deref());
        let level = level.map_or(0, |words| width(words, SMALL) + 10);
        let right = if level <= WIDEST_LEVEL { level.max(RIGHT) } else { RIGHT };
        let beside = left + right;
        let count = values.len().max(1) as i32;
        let series = panels.first().map_or(0, |panel| panel.series.len());
        let for_bars = match plot.kind {
            PlotKind::Bars => (f64::from(count) * series as f64 * BAR / 0.8) as i32 + beside,
            PlotKind::Lines | PlotKind::Points => 0,
        };
        let for_values = count * (value + 8) + beside;
        // Beyond half as much again, a larger chart is harder to read.
        let has_room = for_values <= PANEL.0 * 3 / 2 && plot.spacing == Spacing::Even;
        let for_values = if has_room { for_values } else { 0 };
        let across = PANEL.0.max(for_bars).max(for_values).min(ACROSS);
        let columns = panels.len().clamp(1, (ACROSS / across) as usize);
        let across = across.max(MIN_WIDTH / columns as i32);
        let part = (across - beside) / count;
        // If numbers are close together, some of them are left out instead.
        let is_upright = part < value + 4 && plot.spacing == Spacing::Even;
        let below = BELOW + if is_upright { value - LINE + 2 } else { 0 };
        let all = across * columns as i32;
        let title = style::wrap(&plot.title, LARGE, all - 32);
        let mut layout = Layout {
            heading: String::new(),
            names: Vec::new(),
            legend: Vec::new(),
            head: 14 + 20 * title.len() as i32,
            title,
            columns,
            rows: panels.len().div_ceil(columns),
            panel: (across, PANEL.1 + below - BELOW),
            left,
            right,
            below,
            places: places(plan, plot, values.len()),
            values,
            is_upright,
            note: has_arrows(plot, scale, panels).then_some(ARROWS),
        };
        if series > 1 {
            layout.names = panels[0].series.iter().map(|series| series.name.clone()).collect();
            let own = plan.axes.iter().find(|axis| Some(&axis.name) == plot.series.as_ref());
            layout.heading = own.map_or(String::new(), |axis| format!("{}:", axis.title()));
            let first = (28 + width(&layout.heading, SMALL), layout.head + 10);
            layout.legend = style::places(&layout.names, first, 16, all - 16);
            layout.head = layout.legend.last().map_or(layout.head, |(_, y)| y + style::ROW);
        }
        if layout.note.is_some() {
            layout.head += style::ROW;
        }
        layout
    }

    fn size(&self) -> (u32, u32) {
        let across = self.panel.0 * self.columns as i32;
        (across as u32, (self.head + self.panel.1 * self.rows as i32) as u32)
    }

    /// Title and legend.
    fn draw_head(&self, kind: PlotKind, area: &Area<'_>) -> Drawn {
        for (at, line) in (0..).zip(&self.title) {
            write(area, line, (16, 20 + 20 * at), &text(LARGE, HPos::Left, VPos::Center))?;
        }
        let y = 24 + 20 * self.title.len() as i32;
        write(area, &self.heading, (16, y), &text(SMALL, HPos::Left, VPos::Center))?;
        let key = match kind {
            PlotKind::Lines | PlotKind::Points => Key::Line,
            PlotKind::Bars => Key::Bar,
        };
        if let Some(note) = self.note {
            let y = self.head - style::ROW / 2;
            write(area, note, (16, y), &text(SMALL, HPos::Left, VPos::Center))?;
        }
        style::legend(area, &self.names, key, &self.legend)
    }

    /// The values below an axis, from left to right; if two would touch, the first.
    fn draw_values(&self, frame: &Frame, area: &Area<'_>) -> Drawn {
        let mut placed: Vec<(i32, &String)> =
            self.places.iter().zip(&self.values).map(|(at, name)| (frame.x(*at), name)).collect();
        placed.sort_by_key(|(x, _)| *x);
        let mut end = i32::MIN;
        for (x, name) in placed {
            let half = if self.is_upright { LINE / 2 } else { width(name, SMALL) / 2 };
            if x - half < end {
                continue;
            }
            end = x + half + if self.is_upright { 0 } else { 4 };
            let style = if self.is_upright {
                let end = text(SMALL, HPos::Right, VPos::Center);
                end.transform(FontTransform::Rotate270)
            } else {
                text(SMALL, HPos::Center, VPos::Top)
            };
            write(area, name, (x, frame.bottom + 7), &style)?;
        }
        Ok(())
    }
}

/// Draws a plot.
pub(super) fn draw(plan: &Plan, plot: &Plot, panels: &[Panel]) -> Result<Figure, PlotError> {
    let scale = Scale::of(plot, panels);
    let layout = Layout::of(plan, plot, panels, &scale);
    let size = layout.size();
    let svg = style::document(size, |area| {
        layout.draw_head(plot.kind, area)?;
        let (_, below) = area.split_vertically(layout.head);
        for (panel, place) in panels.iter().zip(below.split_evenly((layout.rows, layout.columns))) {
            draw_panel(plan, plot, panel, &scale, &layout, &place)?;
        }
        Ok(())
    });
    Ok(Figure::of(plot, size, svg.map_err(PlotError::drawing(&plot.name))?))
}

/// All points of a plot.
fn points(panels: &[Panel]) -> impl Iterator<Item = &Point> {
    let series = panels.iter().flat_map(|panel| &panel.series);
    series.flat_map(|series| series.points.iter().flatten())
}

/// Whether a line lacks a mean that the upward axis cannot show.
fn has_arrows(plot: &Plot, scale: &Scale, panels: &[Panel]) -> bool {
    plot.kind == PlotKind::Lines && points(panels).any(|point| !scale.has(point.mean))
}

/// The upward axis, the same in all panels.
pub(super) struct Scale {
    low: f64,
    high: f64,
    is_log: bool,
}

impl Scale {
    fn of(plot: &Plot, panels: &[Panel]) -> Self {
        let points = points(panels);
        // If the interval of a mean is nearly as wide as the mean, decades down to its lower end would be
        // empty.
        let ends = |point: &Point| match plot.log {
            true => [point.low.max(point.mean / 10.0), point.mean, point.high],
            false => [point.low, point.mean, point.high],
        };
        let shown = points.flat_map(ends).chain(plot.level);
        let shown = shown.filter(|value| !plot.log || *value > 0.0);
        let (low, high) = shown
            .fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        // A figure without values above zero has no logarithms to show.
        if low > high { Scale::over(0.0, 1.0, false) } else { Scale::over(low, high, plot.log) }
    }

    /// A scale for values in this range.
    pub(super) fn over(low: f64, high: f64, is_log: bool) -> Self {
        if is_log && low > 0.0 {
            return Scale { low: low.log10() - 0.1, high: high.log10() + 0.1, is_log: true };
        }
        // Bars and shares are read from zero.
        let low = low.min(0.0);
        let span = high - low;
        let room = if span > 0.0 { span * 0.08 } else { 1.0 };
        Scale { low: if low < 0.0 { low - room } else { 0.0 }, high: high + room, is_log: false }
    }

    /// Whether it can show a value.
    fn has(&self, value: f64) -> bool {
        !self.is_log || value > 0.0
    }

    /// The position of a value between bottom (0) and top (1).
    pub(super) fn place(&self, value: f64) -> f64 {
        let value = if self.is_log { value.max(f64::MIN_POSITIVE).log10() } else { value };
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// The positions of grid lines, and their labels.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let steps = if self.is_log {
            // Between the powers of ten only if there are few of them.
            let decades = self.high - self.low;
            let factors: &[f64] = if decades < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
            let every = (decades / 8.0).ceil().max(1.0) as i32;
            (self.low.floor() as i32..=self.high.ceil() as i32)
                .filter(|power| power.rem_euclid(every) == 0)
                .flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)))
                .filter(|value| (self.low..=self.high).contains(&value.log10()))
                .collect()
        } else {
            style::steps(self.low, self.high, 5)
        };
        steps.into_iter().map(|value| (value, label(value))).collect()
    }
}

/// The rectangle that data are drawn in.
pub(super) struct Frame {
    pub(super) left: i32,
    pub(super) right: i32,
    pub(super) top: i32,
    pub(super) bottom: i32,
}

impl Frame {
    pub(super) fn y(&self, share: f64) -> i32 {
        self.bottom - (share * f64::from(self.bottom - self.top)).round() as i32
    }

    /// The position at this share of the way from left to right.
    fn x(&self, share: f64) -> i32 {
        self.left + (share * f64::from(self.right - self.left)).round() as i32
    }
}

fn draw_panel(
    plan: &Plan,
    plot: &Plot,
    panel: &Panel,
    scale: &Scale,
    layout: &Layout,
    area: &Area<'_>,
) -> Drawn {
    let (across, down) = layout.panel;
    let (left, right, bottom) = (layout.left, across - layout.right, down - layout.below);
    let frame = Frame { left, right, top: TOP, bottom };
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
    layout.draw_values(&frame, area)?;
    let centred = text(SMALL, HPos::Center, VPos::Top);
    let axis = plan.axes.iter().find(|axis| axis.name == plot.x);
    let words = axis.map_or(plot.x.as_str(), |axis| axis.title());
    write(area, words, ((frame.left + frame.right) / 2, down - 25), &centred)?;
    let corners =
        [(frame.left, frame.top), (frame.left, frame.bottom), (frame.right, frame.bottom)];
    area.draw(&PathElement::new(corners.to_vec(), INK))?;
    match plot.kind {
        PlotKind::Bars => draw_bars(panel, scale, &layout.places, &frame, area)?,
        PlotKind::Lines | PlotKind::Points => {
            draw_lines(panel, scale, &layout.places, &frame, area)?;
        }
    }
    draw_level(plot, scale, layout, &frame, area)
}

/// The level line, over the data, and its title: beside the frame, or if it is too long for that, on white
/// ground above the line.
fn draw_level(
    plot: &Plot,
    scale: &Scale,
    layout: &Layout,
    frame: &Frame,
    area: &Area<'_>,
) -> Drawn {
    let Some(level) = plot.level else { return Ok(()) };
    let y = frame.y(scale.place(level));
    let style = INK.stroke_width(1);
    area.draw(&DashedPathElement::new(vec![(frame.left, y), (frame.right, y)], 4, 3, style))?;
    let words = plot.level_title.as_deref().unwrap_or("");
    if layout.right > RIGHT {
        return write(area, words, (frame.right + 5, y), &text(SMALL, HPos::Left, VPos::Center));
    }
    let left = frame.right - width(words, SMALL) - 4;
    let ground = [(left, y - LINE - 1), (frame.right, y - 2)];
    area.draw(&Rectangle::new(ground, WHITE.filled()))?;
    write(area, words, (frame.right - 2, y - 2), &text(SMALL, HPos::Right, VPos::Bottom))
}

/// A range, if there is more than one cell.
fn draw_range(point: Point, x: i32, scale: &Scale, frame: &Frame, area: &Area<'_>) -> Drawn {
    if !point.has_range {
        return Ok(());
    }
    let (low, high) = (frame.y(scale.place(point.low)), frame.y(scale.place(point.high)));
    area.draw(&PathElement::new(vec![(x, low), (x, high)], INK.stroke_width(1)))?;
    for y in [low, high] {
        area.draw(&PathElement::new(vec![(x - 3, y), (x + 3, y)], INK.stroke_width(1)))?;
    }
    Ok(())
}

fn draw_bars(
    panel: &Panel,
    scale: &Scale,
    places: &[f64],
    frame: &Frame,
    area: &Area<'_>,
) -> Drawn {
    let part = f64::from(frame.right - frame.left) / places.len().max(1) as f64;
    let bar = (part * 0.8 / panel.series.len() as f64).max(2.0);
    for (number, series) in panel.series.iter().enumerate() {
        for (at, point) in places.iter().zip(&series.points) {
            let Some(point) = point else { continue };
            let middle = f64::from(frame.x(*at));
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

fn draw_lines(
    panel: &Panel,
    scale: &Scale,
    places: &[f64],
    frame: &Frame,
    area: &Area<'_>,
) -> Drawn {
    // Side by side, so that ranges do not hide each other.
    let gaps = places.windows(2).map(|pair| (pair[1] - pair[0]).abs());
    let part = gaps.fold(1.0, f64::min) * f64::from(frame.right - frame.left);
    let step = (part / (panel.series.len() + 1) as f64).min(5.0);
    let middle = (panel.series.len() as f64 - 1.0) / 2.0;
    for (number, series) in panel.series.iter().enumerate() {
        let shift = ((number as f64 - middle) * step).round() as i32;
        let placed = places.iter().zip(&series.points);
        let placed = placed.filter_map(|(at, point)| Some((frame.x(*at) + shift, (*point)?)));
        let placed: Vec<(i32, Point)> = placed.collect();
        // A value that the axis cannot show interrupts the line. Joining its neighbours would suggest that it
        // lies between them.
        for piece in placed.split(|(_, point)| !scale.has(point.mean)) {
            let at = |(x, point): &(i32, Point)| (*x, frame.y(scale.place(point.mean)));
            match piece {
                [one] if series.is_level => {
                    let (_, y) = at(one);
                    style::line(area, vec![(frame.left, y), (frame.right, y)], number, 2)?;
                }
                [] | [_] => {}
                several => style::line(area, several.iter().map(at).collect(), number, 2)?,
            }
        }
        for (x, point) in placed {
            if !scale.has(point.mean) {
                draw_arrow((x, frame.y(scale.place(point.high))), number, frame, area)?;
                continue;
            }
            draw_range(point, x, scale, frame, area)?;
            if !series.is_level {
                let at = (x, frame.y(scale.place(point.mean)));
                area.draw(&Circle::new(at, 4, colour(number).filled()))?;
            }
        }
    }
    Ok(())
}

/// An arrow downwards from the end of an interval; from just above the frame's foot if the axis cannot show
/// that, either.
fn draw_arrow((x, y): (i32, i32), number: usize, frame: &Frame, area: &Area<'_>) -> Drawn {
    let style = colour(number).stroke_width(2);
    let (length, half) = ARROW;
    let top = y.min(frame.bottom - length);
    let tip = (x, top + length);
    for points in [
        [(x - half, top), (x + half, top)],
        [(x, top), tip],
        [(tip.0 - half, tip.1 - half), tip],
        [tip, (tip.0 + half, tip.1 - half)],
    ] {
        area.draw(&PathElement::new(points.to_vec(), style))?;
    }
    Ok(())
}
