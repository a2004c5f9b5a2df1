//! Bars of values with their confidence intervals and the bars of gates.

use gradus_stats::interval::ConfidenceInterval;

use super::ResponsiveChart;
use super::frame::{ChartFrame, ChartSize};
use crate::html::svg::Svg;

/// One row of the chart.
#[derive(Clone, Debug, Default)]
pub struct IntervalBar {
    pub label: String,
    /// On the axis; `None` if there is nothing to draw.
    pub value: Option<f64>,
    pub interval: Option<ConfidenceInterval>,
    /// Thresholds of gates on this metric. Those outside the axis are not drawn.
    pub bars: Vec<f64>,
    /// The value as text, or why there is none.
    pub note: String,
}

/// The ends of the axis, and the format of its labels. `low` is less than `high`.
#[derive(Debug, Clone, Copy)]
pub struct AxisRange {
    pub low: f64,
    pub high: f64,
    pub format: fn(f64) -> String,
}

impl AxisRange {
    /// Shares from 0 to 1, labelled in percent.
    pub const PERCENT: AxisRange = AxisRange { low: 0.0, high: 1.0, format: |share| format!("{:.0}", 100.0 * share) };

    /// The position of a value between the ends; outside of 0 to 1 for values beyond them.
    fn axis_fraction(self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }
}

/// Draws a bar from 0 for each value, with its 95 % interval as a whisker and the thresholds of gates as marks.
pub fn draw_interval_bars(rows: &[IntervalBar], ends: AxisRange, axis: &str, label: &str) -> ResponsiveChart {
    let draw = |size| {
        let frame = ChartFrame::new(size, rows.len());
        let mut svg = frame.start_svg(label);
        let tick = |share: f64| (share, (ends.format)(ends.low + share * (ends.high - ends.low)));
        let ticks = [0.0, 0.25, 0.5, 0.75, 1.0].map(tick);
        frame.draw_grid(&mut svg, &ticks, axis);
        for (at, row) in rows.iter().enumerate() {
            svg.group(&format!("{}: {}", row.label, row.note), |svg| draw_row(svg, &frame, ends, at, row));
        }
        svg.finish()
    };
    ResponsiveChart { wide: draw(ChartSize::Wide), narrow: draw(ChartSize::Narrow) }
}

fn draw_row(svg: &mut Svg, frame: &ChartFrame, ends: AxisRange, at: usize, row: &IntervalBar) {
    let x = |value: f64| frame.share_to_x(ends.axis_fraction(value));
    let y = frame.row_middle(at);
    frame.draw_label(svg, at, &row.label);
    let Some(value) = row.value.filter(|value| value.is_finite()) else {
        return frame.draw_placeholder(svg, at, &row.note);
    };
    svg.rect("track", frame.left, y - 7.0, frame.right - frame.left, 14.0);
    // Differences can be negative: their bars go to the left of 0.
    let (from, to) = (x(value.min(0.0)), x(value.max(0.0)));
    svg.rect("score", from, y - 7.0, to - from, 14.0);
    if let Some(ConfidenceInterval { low, high }) = row.interval {
        let (low, high) = (x(low), x(high));
        let whisker = [[(low, y), (high, y)], [(low, y - 5.0), (low, y + 5.0)], [(high, y - 5.0), (high, y + 5.0)]];
        svg.lines("halo", &whisker);
        svg.lines("whisker", &whisker);
    }
    svg.circle("dot", x(value), y, 4.5);
    for bar in row.bars.iter().filter(|bar| (ends.low..=ends.high).contains(*bar)) {
        let x = x(*bar);
        svg.line("gate", (x, y - 9.0), (x, y + 9.0));
        svg.polygon("gate-head", &[(x - 4.5, y - 13.0), (x + 4.5, y - 13.0), (x, y - 6.5)]);
    }
    frame.draw_note(svg, at, &row.note);
}
