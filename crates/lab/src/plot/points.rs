//! Points over a quantity instead of an axis: the gain against the cost.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::chart::{Frame, Scale};
use super::data::Trace;
use super::style::{
    self, Area, Drawn, GRID, INK, Key, LARGE, SMALL, colour, label, text, width, write,
};
use super::{Figure, PlotError};
use crate::plan::{Plan, Plot};

/// Width and height in pixels, without the part above the frame.
const SIZE: (i32, i32) = (720, 420);
/// Room left of the frame, right of it, above and below.
const ROOM: (i32, i32, i32, i32) = (72, 24, 12, 52);
/// Half the side of a square that is not joined.
const SQUARE: i32 = 6;

/// The words of a plot.
struct Words<'a> {
    title: &'a str,
    /// In front of the legend.
    heading: String,
    x: &'a str,
    y: &'a str,
    /// The title of the points that are not joined; empty if there are none.
    alone: &'a str,
}

/// Draws a plot of points.
pub(super) fn draw(plan: &Plan, plot: &Plot, traces: &[Trace]) -> Result<Figure, PlotError> {
    let axis = plan.axes.iter().find(|axis| Some(&axis.name) == plot.series.as_ref());
    let words = Words {
        title: &plot.title,
        heading: axis.map_or(String::new(), |axis| format!("{}:", axis.title())),
        x: plot.x_title.as_deref().unwrap_or(&plot.x),
        y: &plot.y_title,
        alone: plot.alone_title.as_deref().unwrap_or(""),
    };
    let (size, svg) = document(&words, plot.log, traces);
    Ok(Figure::of(plot, size, svg.map_err(PlotError::drawing(&plot.name))?))
}

/// Draws lines over a quantity that belong to no plan.
pub(super) fn curves(title: &str, x: &str, y: &str, traces: &[Trace]) -> Result<String, PlotError> {
    let words = Words { title, heading: String::new(), x, y, alone: "" };
    document(&words, false, traces).1.map_err(PlotError::drawing(title))
}

fn document(
    words: &Words<'_>,
    is_log: bool,
    traces: &[Trace],
) -> ((u32, u32), Result<String, DrawingAreaErrorKind<std::io::Error>>) {
    let title = style::wrap(words.title, LARGE, SIZE.0 - 32);
    let below_title = 24 + 20 * title.len() as i32;
    let names: Vec<String> = traces.iter().map(|trace| trace.name.clone()).collect();
    let first = (28 + width(&words.heading, SMALL), below_title);
    let entries: Vec<String> = names.iter().cloned().chain([words.alone.to_owned()]).collect();
    let places = style::places(&entries, first, 16, SIZE.0 - 16);
    let head = places.last().map_or(below_title, |(_, y)| *y) + style::ROW;
    let frame = Frame {
        left: ROOM.0,
        right: SIZE.0 - ROOM.1,
        top: head + ROOM.2,
        bottom: head + SIZE.1 - ROOM.3,
    };
    let size = (SIZE.0 as u32, (head + SIZE.1) as u32);
    let svg = style::document(size, |area| {
        for (at, line) in (0..).zip(&title) {
            write(area, line, (16, 20 + 20 * at), &text(LARGE, HPos::Left, VPos::Center))?;
        }
        let small = text(SMALL, HPos::Left, VPos::Center);
        write(area, &words.heading, (16, below_title), &small)?;
        style::legend(area, &names, Key::Line, &places[..names.len()])?;
        if let (false, Some((x, y))) = (words.alone.is_empty(), places.last()) {
            square(area, (x + 22, *y), INK)?;
            write(area, words.alone, (x + 34, *y), &small)?;
        }
        draw_points(words, is_log, traces, &frame, area)
    });
    (size, svg)
}

fn square(area: &Area<'_>, (x, y): (i32, i32), colour: RGBColor) -> Drawn {
    let corners = [(x - SQUARE, y - SQUARE), (x + SQUARE, y + SQUARE)];
    area.draw(&Rectangle::new(corners, colour.filled()))?;
    area.draw(&Rectangle::new(corners, INK.stroke_width(1)))
}

fn draw_points(
    words: &Words<'_>,
    is_log: bool,
    traces: &[Trace],
    frame: &Frame,
    area: &Area<'_>,
) -> Drawn {
    let all = || traces.iter().flat_map(|trace| trace.joined.iter().chain(&trace.alone));
    let scale = |value: fn(&(f64, f64)) -> f64| {
        let (low, high) =
            all().map(value).fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
        Scale::over(low, high, is_log)
    };
    let (across, up) = (scale(|point| point.0), scale(|point| point.1));
    let x = |value: f64| {
        let span = f64::from(frame.right - frame.left);
        frame.left + (across.place(value) * span).round() as i32
    };
    let y = |value: f64| frame.y(up.place(value));
    for (value, label) in up.ticks() {
        area.draw(&PathElement::new(vec![(frame.left, y(value)), (frame.right, y(value))], GRID))?;
        write(area, &label, (frame.left - 6, y(value)), &text(SMALL, HPos::Right, VPos::Center))?;
    }
    for (value, _) in across.ticks() {
        area.draw(&PathElement::new(vec![(x(value), frame.top), (x(value), frame.bottom)], GRID))?;
        let below = text(SMALL, HPos::Center, VPos::Top);
        write(area, &label(value), (x(value), frame.bottom + 7), &below)?;
    }
    let upward = text(SMALL, HPos::Center, VPos::Center).transform(FontTransform::Rotate270);
    write(area, words.y, (16, (frame.top + frame.bottom) / 2), &upward)?;
    let centre = ((frame.left + frame.right) / 2, frame.bottom + 27);
    write(area, words.x, centre, &text(SMALL, HPos::Center, VPos::Top))?;
    let corners =
        [(frame.left, frame.top), (frame.left, frame.bottom), (frame.right, frame.bottom)];
    area.draw(&PathElement::new(corners.to_vec(), INK))?;
    for (number, trace) in traces.iter().enumerate() {
        let points: Vec<(i32, i32)> =
            trace.joined.iter().map(|point| (x(point.0), y(point.1))).collect();
        if points.len() > 1 {
            style::line(area, points.clone(), number, 2)?;
        }
        for point in points {
            area.draw(&Circle::new(point, 4, colour(number).filled()))?;
        }
    }
    // Drawn above all lines.
    for (number, trace) in traces.iter().enumerate() {
        for point in &trace.alone {
            square(area, (x(point.0), y(point.1)), colour(number))?;
        }
    }
    Ok(())
}
