//! Plots as SVG text.

use core::fmt::Display;
use core::ops::Range;

use plotters::prelude::*;

use super::{escaped, time_text};
use crate::error::{Error, Result};
use crate::measure::{Bin, Samples};

/// Colours of the series of one plot, used in turn. In a distribution this library comes first, then the rival.
const COLOURS: [RGBColor; 4] = [
    RGBColor(0x1f, 0x6f, 0xb4),
    RGBColor(0xe0, 0x7b, 0x00),
    RGBColor(0x2c, 0x96, 0x4b),
    RGBColor(0xa0, 0x3a, 0x9a),
];
/// Width and height of a plot.
const SIZE: (u32, u32) = (640, 260);

fn failed(error: impl Display) -> Error {
    Error::Plot(error.to_string())
}

/// The distributions of this library and, if measured, of the rival, over the same logarithmic time axis. The height is
/// the share of the samples in a bin.
pub(super) fn histogram(ours: &Samples, rival: Option<&Samples>) -> Result<String> {
    let series: Vec<(RGBColor, Vec<Bin>)> = [Some(ours), rival]
        .into_iter()
        .flatten()
        .zip(COLOURS)
        .map(|(samples, colour)| (colour, samples.bins()))
        .collect();
    let bins = || series.iter().flat_map(|(_, bins)| bins);
    let from = bins().map(|bin| bin.from).fold(f64::INFINITY, f64::min);
    let to = bins().map(|bin| bin.to).fold(0.0, f64::max);
    let share = |bins: &[Bin], count: u64| {
        100.0 * count as f64 / bins.iter().map(|bin| bin.count).sum::<u64>().max(1) as f64
    };
    let tallest = series.iter().flat_map(|(_, bins)| bins.iter().map(|bin| share(bins, bin.count)));
    let height = tallest.fold(0.0, f64::max) * 1.1;
    if from >= to {
        return Ok(String::new());
    }
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .x_label_area_size(30)
            .y_label_area_size(48)
            .build_cartesian_2d((from..to).log_scale(), 0.0..height)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_label_formatter(&|ns| time_text(*ns))
            .y_label_formatter(&|share| format!("{share:.0} %"))
            .draw()
            .map_err(failed)?;
        for (colour, bins) in &series {
            let bars = bins.iter().map(|bin| {
                Rectangle::new([(bin.from, 0.0), (bin.to, share(bins, bin.count))], colour.mix(0.55).filled())
            });
            chart.draw_series(bars).map_err(failed)?;
        }
        area.present().map_err(failed)?;
    }
    Ok(svg)
}

/// An HTML legend. It is placed next to the plot, where it does not hide data.
pub(super) fn key<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let entry = |(name, RGBColor(red, green, blue)): (&str, RGBColor)| {
        format!(" <span style=\"color:#{red:02x}{green:02x}{blue:02x}\">&#9632;</span> {}", escaped(name))
    };
    names.into_iter().zip(COLOURS.into_iter().cycle()).map(entry).collect()
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
            .x_label_area_size(30)
            .y_label_area_size(72)
            .build_cartesian_2d(x.log_scale(), y.log_scale())
            .map_err(failed)?;
        chart
            .configure_mesh()
            .x_label_formatter(&|size| size_text(*size))
            .y_label_formatter(&|rate| format!("{} {unit}", short(*rate)))
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
        let svg = histogram(&ours, Some(&rival)).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        let bars = svg.matches("<rect").count();
        assert!(bars >= ours.bins().len() + rival.bins().len(), "{bars}");
        assert!(svg.contains("µs"), "{svg}");
        let alone = histogram(&ours, None).unwrap().matches("<rect").count();
        assert_eq!(alone + rival.bins().len(), bars);
    }

    #[test]
    fn a_key_names_every_colour() {
        let key = key(["a<b", "c"]);
        assert!(key.contains("#1f6fb4\">&#9632;</span> a&lt;b") && key.contains("</span> c"), "{key}");
    }

    #[test]
    fn one_sample_or_none_is_accepted() {
        assert!(histogram(&samples(1), None).unwrap().contains("<rect"));
        assert_eq!(histogram(&samples(0), None).unwrap(), "");
        assert_eq!(lines(&[], "GB/s", bytes_text).unwrap(), "");
    }

    #[test]
    fn lines_are_drawn_in_their_unit() {
        let line = ("to_device".to_owned(), vec![(4096.0, 1.0), (65536.0, 9.0)]);
        let svg = lines(&[line], "GB/s", bytes_text).unwrap();
        assert!(svg.contains("GB/s") && svg.contains("<polyline"), "{svg}");
    }
}
