//! The style of all plots.

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// The area that plots are drawn on.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The result of drawing.
pub(super) type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Colours that colour-blind readers can distinguish, after Okabe and Ito ("Color universal design", 2008),
/// with grey for yellow, which is hard to see on white.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(150, 150, 150),
];

/// The font of all texts.
pub(super) const FONT: &str = "DejaVu Sans, Arial, sans-serif";
/// Texts of axes and legends, in pixels.
pub(super) const SMALL: f64 = 12.0;
/// Titles of panels.
pub(super) const MIDDLE: f64 = 13.0;
/// Titles of plots.
pub(super) const LARGE: f64 = 16.0;
/// Lines of grids and frames.
pub(super) const GRID: RGBColor = RGBColor(222, 222, 222);
/// Texts.
pub(super) const INK: RGBColor = RGBColor(40, 40, 40);

/// An SVG document of a size in pixels, on white ground.
pub(super) fn document(
    size: (u32, u32),
    draw: impl FnOnce(&Area<'_>) -> Drawn,
) -> Result<String, DrawingAreaErrorKind<std::io::Error>> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    area.fill(&WHITE)?;
    draw(&area)?;
    area.present()?;
    drop(area);
    Ok(svg)
}

/// The colour of the n-th line or bar. From the ninth on they are lighter.
pub(super) fn colour(number: usize) -> RGBColor {
    let RGBColor(red, green, blue) = COLOURS[number % COLOURS.len()];
    let lighter = |part: u8| if number / COLOURS.len() % 2 == 1 { 128 + part / 2 } else { part };
    RGBColor(lighter(red), lighter(green), lighter(blue))
}

/// The dash pattern of the n-th line, in pixels of line and gap: colours are not the only difference.
pub(super) fn dash(number: usize) -> Option<(u32, u32)> {
    [None, Some((8, 3)), Some((3, 3)), Some((12, 4)), Some((5, 2)), Some((2, 4)), Some((9, 6))]
        [number % 7]
}

/// A text style; `across` and `down` say which point of the text is placed.
pub(super) fn text(size: f64, across: HPos, down: VPos) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK).pos(Pos::new(across, down))
}

/// The estimated width of a text in pixels: the backend has no font metrics.
pub(super) fn width(text: &str, size: f64) -> i32 {
    (text.chars().count() as f64 * size * 0.56).ceil() as i32
}

/// Writes a text, its reference point at `at`.
pub(super) fn write(area: &Area<'_>, words: &str, at: (i32, i32), style: &TextStyle<'_>) -> Drawn {
    area.draw(&Text::new(words.to_owned(), at, style.clone()))
}

/// A line from point to point, in pixels, in the style of the n-th series.
pub(super) fn line(area: &Area<'_>, points: Vec<(i32, i32)>, number: usize, stroke: u32) -> Drawn {
    let style = colour(number).stroke_width(stroke);
    match dash(number) {
        None => area.draw(&PathElement::new(points, style)),
        Some((length, gap)) => {
            area.draw(&DashedPathElement::new(points, length as i32, gap as i32, style))
        }
    }
}

/// The symbol of a series in a legend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// A piece of its line.
    Line,
    /// A piece of its bars.
    Bar,
}

/// Breaks a text into lines of `most` pixels; a longer word has its own line.
pub(super) fn wrap(words: &str, size: f64, most: i32) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(&format!("{line} {word}"), size) <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The distance between rows of a legend.
pub(super) const ROW: i32 = 18;

/// The positions of a legend's entries: from `first` to the right, and after `right` is reached, in a row
/// below that begins at `left`.
pub(super) fn places(
    names: &[String],
    first: (i32, i32),
    left: i32,
    right: i32,
) -> Vec<(i32, i32)> {
    let mut at = first;
    let place = |name: &String| {
        let needed = 34 + width(name, SMALL);
        if at.0 + needed > right && at.0 > left {
            at = (left, at.1 + ROW);
        }
        let place = at;
        at.0 += needed + 22;
        place
    };
    names.iter().map(place).collect()
}

/// A legend: a symbol of each series and its name, at the positions from [`places`].
pub(super) fn legend(area: &Area<'_>, names: &[String], key: Key, places: &[(i32, i32)]) -> Drawn {
    let style = text(SMALL, HPos::Left, VPos::Center);
    for (number, (name, (x, y))) in names.iter().zip(places.iter().copied()).enumerate() {
        match key {
            Key::Line => line(area, vec![(x, y), (x + 28, y)], number, 3)?,
            Key::Bar => {
                let corners = [(x + 12, y - 6), (x + 28, y + 6)];
                area.draw(&Rectangle::new(corners, colour(number).filled()))?;
            }
        }
        write(area, name, (x + 34, y), &style)?;
    }
    Ok(())
}

/// Steps of a round length, about `count` of them, from 0 or the first one from `low` to `high`.
pub(super) fn steps(low: f64, high: f64, count: usize) -> Vec<f64> {
    let rough = (high - low).max(f64::MIN_POSITIVE) / count.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough * (1.0 - 1e-9))
        .unwrap_or(10.0 * power);
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).map(|at| at as f64 * step).collect()
}

/// The label of a number at an axis, without unneeded digits.
pub(super) fn label(number: f64) -> String {
    let digits = match number.abs() {
        0.0 => 0,
        tiny if tiny < 0.000_999 => return power_of_ten(number),
        huge if huge >= 99_999.0 => return power_of_ten(number),
        large if large >= 10.0 => 0,
        middle if middle >= 1.0 => 1,
        _ => 3,
    };
    let text = format!("{number:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// A number of two digits and a power of ten.
fn power_of_ten(number: f64) -> String {
    format!("{number:.1e}").replacen(".0e", "e", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_cover_the_range() {
        assert_eq!(steps(0.0, 10.5, 5), [0.0, 5.0, 10.0]);
        assert_eq!(steps(0.0, 1.0, 5).len(), 6);
        assert_eq!(steps(-2.0, 2.0, 4), [-2.0, -1.0, 0.0, 1.0, 2.0]);
    }

    #[test]
    fn labels_have_no_needless_digits() {
        for (number, text) in [
            (0.0, "0"),
            (10.0, "10"),
            (2.5, "2.5"),
            (0.05, "0.05"),
            (1.0, "1"),
            (1e-11, "1e-11"),
            (2.5e6, "2.5e6"),
        ] {
            assert_eq!(label(number), text);
        }
    }

    #[test]
    fn long_titles_and_legends_are_wrapped() {
        let lines = wrap("a title of many words", 10.0, 70);
        assert_eq!(lines.join(" "), "a title of many words");
        assert!(lines.len() > 1 && lines.iter().all(|line| width(line, 10.0) <= 70), "{lines:?}");
        assert_eq!(wrap("unbreakable", 10.0, 5), ["unbreakable"]);
        let names = ["reno", "cubic", "nice"].map(str::to_owned);
        let all = places(&names, (50, 10), 5, 1000);
        assert!(all.iter().all(|(_, y)| *y == 10), "{all:?}");
        assert!(all[0].0 == 50 && all[1].0 > 50 + 34 && all[2].0 > all[1].0, "{all:?}");
        assert_eq!(places(&names, (50, 10), 5, 60), [(5, 28), (5, 46), (5, 64)]);
    }

    #[test]
    fn first_sixteen_series_have_distinct_colours() {
        for number in 0..16 {
            assert!((0..number).all(|other| colour(other) != colour(number)), "{number}");
        }
    }
}
