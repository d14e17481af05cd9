//! Plots as SVG text.

use core::fmt::Display;
use core::ops::Range;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{escaped, time_text};
use crate::error::{Error, Result};
use crate::measure::{Bin, Samples};

/// Colours of the series of one plot, used in turn. In a distribution this library comes first, then the rival.
pub(super) const COLOURS: [RGBColor; 4] = [
    RGBColor(0x1f, 0x6f, 0xb4),
    RGBColor(0xe0, 0x7b, 0x00),
    RGBColor(0x2c, 0x96, 0x4b),
    RGBColor(0xa0, 0x3a, 0x9a),
];
/// Colour of the baseline.
pub(super) const BEFORE: RGBColor = RGBColor(0x88, 0x88, 0x88);
/// Width and height of a plot.
const SIZE: (u32, u32) = (640, 280);

fn failed(error: impl Display) -> Error {
    Error::Plot(error.to_string())
}

/// A distribution of a plot, with the percentiles to mark.
pub(super) struct Distribution {
    /// Its bins.
    pub(super) bins: Vec<Bin>,
    /// Names and times of the marks.
    pub(super) marks: Vec<(&'static str, f64)>,
}

impl Distribution {
    /// The distribution of some samples, with median, p90 and p99 marked.
    pub(super) fn of(samples: &Samples) -> Self {
        let marks =
            samples.summary().map(|all| vec![("p50", all.median), ("p90", all.p90), ("p99", all.p99)]);
        Self { bins: samples.bins(), marks: marks.unwrap_or_default() }
    }

    fn share(&self, count: u64) -> f64 {
        100.0 * count as f64 / self.bins.iter().map(|bin| bin.count).sum::<u64>().max(1) as f64
    }
}

/// Font of all text.
const FONT: (&str, u32) = ("sans-serif", 17);
/// Room for the names of marks above the bars, as a share of the tallest bar per line of text.
const MARK_LINE: f64 = 0.09;

/// The distributions over the same logarithmic time axis, each with its colour. The height is the share of the samples
/// in a bin. Vertical lines mark the percentiles; those of the first distribution have names.
pub(super) fn histogram(series: &[(RGBColor, Distribution)]) -> Result<String> {
    let bins = || series.iter().flat_map(|(_, distribution)| &distribution.bins);
    let from = bins().map(|bin| bin.from).fold(f64::INFINITY, f64::min);
    let to = bins().map(|bin| bin.to).fold(0.0, f64::max);
    let tallest = series.iter().flat_map(|(_, one)| one.bins.iter().map(|bin| one.share(bin.count)));
    let tallest = tallest.fold(0.0, f64::max);
    let height = tallest * (1.05 + 3.0 * MARK_LINE);
    if from >= to {
        return Ok(String::new());
    }
    // Room for the text of a mark at the right end.
    let to = to * (to / from).powf(0.06);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .margin_right(36)
            .x_label_area_size(30)
            .y_label_area_size(56)
            .build_cartesian_2d((from..to).log_scale(), 0.0..height)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_label_formatter(&|ns| time_text(*ns))
            .y_label_formatter(&|share| format!("{share:.0} %"))
            .label_style(FONT)
            .x_labels(6)
            .y_labels(6)
            .light_line_style(TRANSPARENT)
            .draw()
            .map_err(failed)?;
        for (colour, one) in series {
            let bars = one.bins.iter().map(|bin| {
                Rectangle::new([(bin.from, 0.0), (bin.to, one.share(bin.count))], colour.mix(0.5).filled())
            });
            chart.draw_series(bars).map_err(failed)?;
        }
        for (at, (colour, one)) in series.iter().enumerate() {
            for (line, (name, time)) in one.marks.iter().enumerate() {
                let top = height - tallest * MARK_LINE * line as f64;
                let end = if at == 0 { top } else { tallest };
                let path = PathElement::new([(*time, 0.0), (*time, end)], colour.stroke_width(2));
                chart.draw_series([path]).map_err(failed)?;
                if at == 0 {
                    // Beside the line, on the side with room.
                    let right = (time / from).ln() > 0.75 * (to / from).ln();
                    let side = if right { HPos::Right } else { HPos::Left };
                    let style = FONT.into_text_style(&area).pos(Pos::new(side, VPos::Top));
                    let text = format!("\u{a0}{name} {}\u{a0}", time_text(*time));
                    chart.draw_series([Text::new(text, (*time, top), style)]).map_err(failed)?;
                }
            }
        }
        area.present().map_err(failed)?;
    }
    Ok(svg)
}

/// An HTML legend. It is placed next to the plot, where it does not hide data.
pub(super) fn key<'a>(names: impl IntoIterator<Item = (&'a str, RGBColor)>) -> String {
    let entry = |(name, RGBColor(red, green, blue)): (&str, RGBColor)| {
        format!(
            " <span style=\"color:#{red:02x}{green:02x}{blue:02x}\">&#9632;</span>\u{a0}{}",
            escaped(name)
        )
    };
    names.into_iter().map(entry).collect()
}

/// The colours of lines, in their order.
pub(super) fn in_turn<'a>(
    names: impl IntoIterator<Item = &'a str>,
) -> impl Iterator<Item = (&'a str, RGBColor)> {
    names.into_iter().zip(COLOURS.into_iter().cycle())
}

/// A line of a plot: its name and its points.
pub(super) type Line = (String, Vec<(f64, f64)>);

/// Lines over two logarithmic axes: rates or times in `unit` over sizes, formatted by `size_text`.
pub(super) fn lines(lines: &[Line], unit: &str, size_text: fn(f64) -> String) -> Result<String> {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let range = |values: &mut dyn Iterator<Item = f64>| -> Range<f64> {
        let (low, high) =
            values.fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
        low / 1.25..high * 1.25
    };
    let (x, y) = (range(&mut points().map(|point| point.0)), range(&mut points().map(|point| point.1)));
    if x.is_empty() || y.is_empty() || !x.start.is_finite() {
        return Ok(String::new());
    }
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .margin_right(36)
            .x_label_area_size(30)
            .y_label_area_size(96)
            .build_cartesian_2d(x.log_scale(), y.log_scale())
            .map_err(failed)?;
        chart
            .configure_mesh()
            .x_label_formatter(&|size| size_text(*size))
            .y_label_formatter(&|rate| format!("{} {unit}", short(*rate)))
            .label_style(FONT)
            .x_labels(6)
            .y_labels(6)
            .light_line_style(TRANSPARENT)
            .draw()
            .map_err(failed)?;
        for ((_, points), colour) in lines.iter().zip(COLOURS.into_iter().cycle()) {
            chart
                .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(3))
                .map_err(failed)?;
        }
        area.present().map_err(failed)?;
    }
    Ok(svg)
}

/// A number of bytes for an axis, without decimals to save space.
pub(super) fn bytes_text(bytes: f64) -> String {
    match bytes {
        bytes if bytes < 1e3 => format!("{bytes:.0} B"),
        bytes if bytes < 1e6 => format!("{:.0} kB", bytes / 1e3),
        bytes => format!("{:.0} MB", bytes / 1e6),
    }
}

/// A number on an axis.
fn short(value: f64) -> String {
    match value {
        value if value < 0.01 => format!("{value:.0e}"),
        value if value < 1.0 => format!("{value:.2}"),
        value => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn samples(count: u64) -> Samples {
        let mut samples = Samples::default();
        (1..=count).for_each(|at| samples.add(Duration::from_micros(at * at), 1));
        samples
    }

    #[test]
    fn a_histogram_has_a_bar_per_bin() {
        let (ours, rival) = (samples(100), samples(50));
        let both = |rival: &[&Samples]| {
            let all = [&[&ours], rival].concat();
            histogram(&COLOURS.into_iter().zip(all.into_iter().map(Distribution::of)).collect::<Vec<_>>())
                .unwrap()
        };
        let svg = both(&[&rival]);
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        let bars = svg.matches("<rect").count();
        assert!(bars >= ours.bins().len() + rival.bins().len(), "{bars}");
        assert!(svg.contains("µs"), "{svg}");
        let alone = both(&[]);
        assert_eq!(alone.matches("<rect").count() + rival.bins().len(), bars);
        for name in ["p50 2.50 ms", "p90 8.1", "p99 9.8"] {
            assert!(alone.contains(name) && svg.contains(name), "{name}: {alone}");
        }
    }

    #[test]
    fn a_key_names_every_colour() {
        let key = key(in_turn(["a<b", "c"]));
        assert!(
            key.contains("#1f6fb4\">&#9632;</span>\u{a0}a&lt;b") && key.contains("</span>\u{a0}c"),
            "{key}"
        );
    }

    #[test]
    fn one_sample_or_none_is_accepted() {
        let alone = |count| histogram(&[(COLOURS[0], Distribution::of(&samples(count)))]).unwrap();
        assert!(alone(1).contains("<rect"));
        assert_eq!(alone(0), "");
        assert_eq!(lines(&[], "GB/s", bytes_text).unwrap(), "");
    }

    #[test]
    fn lines_are_drawn_in_their_unit() {
        let line = ("to_device".to_owned(), vec![(4096.0, 1.0), (65536.0, 9.0)]);
        let svg = lines(&[line], "GB/s", bytes_text).unwrap();
        assert!(svg.contains("GB/s") && svg.contains("<polyline"), "{svg}");
    }
}
