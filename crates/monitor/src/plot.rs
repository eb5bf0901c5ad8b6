//! A plot of rates over time as text.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::symbols::Marker;
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, Widget};

/// Values over time, with a letter that stands for them.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Drawn at each value.
    pub letter: char,
    /// The name of the measured quantity.
    pub name: String,
    /// Seconds and values.
    pub points: Vec<(f64, f64)>,
}

/// Draws curves over a common time, `width` by `height` characters and a line for each name. Later curves lie on top of
/// earlier ones. Values below zero are left out.
pub fn plot(curves: &[Curve], unit: &str, width: u16, height: u16) -> String {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let last = points().map(|point| point.0).fold(1.0, f64::max);
    let top = ceiling(points().map(|point| point.1).fold(0.0, f64::max));
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    let names: Vec<String> = curves.iter().map(|curve| curve.letter.to_string()).collect();
    // One data set per curve, each drawn alone, so that its dots become its letter.
    for (curve, letter) in curves.iter().zip(&names) {
        let mut layer = Buffer::empty(area);
        let set = Dataset::default()
            .marker(Marker::Dot)
            .graph_type(GraphType::Scatter)
            .data(&curve.points);
        chart(vec![set], last, top, unit).render(area, &mut layer);
        for (cell, new) in buffer.content.iter_mut().zip(layer.content) {
            match new.symbol() {
                " " => {}
                "•" => _ = cell.set_symbol(letter),
                other => _ = cell.set_symbol(other),
            }
        }
    }
    let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    let mut text: String = (0..height).map(|y| line(y).trim_end().to_owned() + "\n").collect();
    for curve in curves {
        text += &format!("  {} {}\n", curve.letter, curve.name);
    }
    text
}

fn chart<'a>(sets: Vec<Dataset<'a>>, last: f64, top: f64, unit: &str) -> Chart<'a> {
    let x = Axis::default().bounds([0.0, last]).labels([
        "0".to_owned(),
        format!("{:.0}", last / 2.0),
        format!("{last:.0} s"),
    ]);
    let y = Axis::default().bounds([0.0, top]).labels([
        "0".to_owned(),
        format!("{}", top / 2.0),
        format!("{top} {unit}"),
    ]);
    Chart::new(sets).x_axis(x).y_axis(y).legend_position(None)
}

/// The next number of 1, 2 or 5 times a power of ten.
fn ceiling(value: f64) -> f64 {
    let value = value.max(1e-3);
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    let step = steps.into_iter().find(|step| step * power >= value * 0.999);
    step.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceiling_is_a_round_number_above() {
        for (value, expected) in
            [(0.0, 0.001), (9.4, 10.0), (10.0, 10.0), (11.0, 20.0), (47.0, 50.0)]
        {
            assert!((ceiling(value) - expected).abs() < 1e-9, "{value}");
        }
    }

    #[test]
    fn curves_are_drawn_by_their_letters() {
        let curve = |letter, name: &str, value: f64| Curve {
            letter,
            name: name.to_owned(),
            points: (0..=20).map(|second| (f64::from(second), value)).collect(),
        };
        let text =
            plot(&[curve('d', "download", 9.0), curve('b', "backup", 1.0)], "Mbit/s", 60, 10);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("10 Mbit/s"), "{text}");
        let line_of = |letter| lines.iter().position(|line| line.matches(letter).count() > 15);
        let (download, backup) = (line_of('d').unwrap(), line_of('b').unwrap());
        assert!(download < 3 && backup > 5 && backup < 9, "{text}");
        assert!(lines[9].contains("20 s"), "{text}");
        assert_eq!(lines[10..], ["  d download", "  b backup"]);
    }

    #[test]
    fn plot_without_points_does_not_panic() {
        plot(&[], "Mbit/s", 20, 5);
        plot(&[Curve { letter: 'x', name: String::new(), points: Vec::new() }], "s", 1, 1);
    }
}
