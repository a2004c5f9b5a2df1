//! Horizontal bars for amounts, optionally divided into segments.

use super::frame::{ChartFrame, ChartSize};
use super::{BarSegment, ResponsiveChart};
use crate::html::svg::Svg;

/// One row of a bar chart.
#[derive(Clone, Debug)]
pub struct BarChartRow {
    pub label: String,
    /// Segments from left to right.
    pub segments: Vec<BarSegment>,
    /// A thin bar below the segments, on the same axis: a subset that overlaps several of them.
    pub below: Option<BarSegment>,
    /// The number at the right; also part of the tooltip.
    pub note: String,
    /// The text shown if there is no bar.
    pub placeholder: Option<String>,
}

/// The axis below the bars, which always begins at 0: a truncated axis would exaggerate differences.
#[derive(Clone, Copy, Debug)]
pub struct BarAxis<'t> {
    pub title: &'t str,
    /// Whether amounts are counts; then the axis has no fractions.
    pub whole: bool,
    pub format: fn(f64) -> String,
}

/// Draws a bar for each row, on an axis from 0 to a round number that is not below the largest row.
pub fn draw_bar_chart(rows: &[BarChartRow], axis: BarAxis<'_>, label: &str) -> ResponsiveChart {
    let (end, step) = choose_axis_scale(rows.iter().map(BarChartRow::extent).fold(0.0, f64::max), axis.whole);
    let steps = (end / step).round() as u32;
    let ticks: Vec<(f64, String)> =
        (0..=steps).map(|at| (f64::from(at) / f64::from(steps), (axis.format)(f64::from(at) * step))).collect();
    let draw = |size| {
        let frame = ChartFrame::new(size, rows.len());
        let mut svg = frame.start_svg(label);
        frame.draw_grid(&mut svg, &ticks, axis.title);
        for (at, row) in rows.iter().enumerate() {
            svg.group(&format!("{}: {}", row.label, row.note), |svg| draw_row(svg, &frame, at, row, end));
        }
        svg.finish()
    };
    ResponsiveChart { wide: draw(ChartSize::Wide), narrow: draw(ChartSize::Narrow) }
}

impl BarChartRow {
    /// The length of the row on the axis.
    fn extent(&self) -> f64 {
        let sum: f64 = self.segments.iter().map(|segment| clamp_bar_value(segment.value)).sum();
        sum.max(self.below.map_or(0.0, |below| clamp_bar_value(below.value)))
    }
}

fn draw_row(svg: &mut Svg, frame: &ChartFrame, at: usize, row: &BarChartRow, end: f64) {
    let y = frame.row_middle(at);
    frame.draw_label(svg, at, &row.label);
    if let Some(placeholder) = &row.placeholder {
        return frame.draw_placeholder(svg, at, placeholder);
    }
    let height = if row.below.is_some() { 14.0 } else { 16.0 };
    let mut from = 0.0;
    for segment in &row.segments {
        let to = from + clamp_bar_value(segment.value) / end;
        if to > from {
            svg.rect(
                segment.fill.css_class(),
                frame.share_to_x(from),
                y - 8.0,
                frame.share_to_x(to) - frame.share_to_x(from),
                height,
            );
        }
        from = to;
    }
    if let Some(below) = row.below.filter(|below| clamp_bar_value(below.value) > 0.0) {
        svg.rect(
            below.fill.css_class(),
            frame.left,
            y + 7.5,
            frame.share_to_x(clamp_bar_value(below.value) / end) - frame.left,
            4.5,
        );
    }
    frame.draw_note(svg, at, &row.note);
}

/// NaN, infinities and negative numbers count as 0.
fn clamp_bar_value(value: f64) -> f64 {
    if value.is_finite() { value.max(0.0) } else { 0.0 }
}

/// The end of the axis and the distance of its lines: 1, 2 or 5 times a power of ten, with at most six lines.
fn choose_axis_scale(greatest: f64, whole: bool) -> (f64, f64) {
    if greatest <= 0.0 {
        return (1.0, 1.0);
    }
    let power = 10_f64.powf((greatest / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power).into_iter().find(|step| greatest / step <= 5.0);
    let step = step.unwrap_or(10.0 * power);
    let step = if whole { step.max(1.0) } else { step };
    // Subnormal numbers have no usable power of ten.
    if !step.is_normal() {
        return (1.0, 1.0);
    }
    ((greatest / step).ceil().max(1.0) * step, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        assert_eq!(choose_axis_scale(0.0, true), (1.0, 1.0));
        assert_eq!(choose_axis_scale(1.0, true), (1.0, 1.0));
        assert_eq!(choose_axis_scale(7.0, true), (8.0, 2.0));
        assert_eq!(choose_axis_scale(41.0, true), (50.0, 10.0));
        assert_eq!(choose_axis_scale(100.0, true), (100.0, 20.0));
        let (end, step) = choose_axis_scale(0.0123, false);
        assert!((end - 0.015).abs() < 1e-9 && (step - 0.005).abs() < 1e-9, "{end} {step}");
        for greatest in [f64::MIN_POSITIVE, 1e-300, 1e300, f64::MAX, 3.0, 12_345.6] {
            let (end, step) = choose_axis_scale(greatest, false);
            assert!(step > 0.0 && step.is_finite(), "{greatest}");
            assert!(end / step <= 6.0 && end / step >= 1.0 || !end.is_finite(), "{greatest}: {end} {step}");
        }
    }
}
