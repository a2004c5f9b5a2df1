//! Shares with how far they can be trusted.

use gradus_eval::interval::Interval;

use super::Chart;
use super::frame::{Frame, Size};
use crate::output::html::svg::Svg;

#[derive(Clone, Debug, Default)]
pub(crate) struct IntervalBar {
    pub(crate) label: String,
    /// From 0 to 1; none where there is nothing to draw.
    pub(crate) value: Option<f64>,
    pub(crate) interval: Option<Interval>,
    /// What is demanded of it.
    pub(crate) bars: Vec<f64>,
    /// The value in words, or why there is none.
    pub(crate) note: String,
}

/// A bar for each share, with its interval as a line with ends and what is demanded as a mark above.
pub(crate) fn interval_bars(rows: &[IntervalBar], axis: &str, label: &str) -> Chart {
    let draw = |size| {
        let frame = Frame::new(size, rows.len());
        let mut svg = frame.start(label);
        let ticks = [0, 25, 50, 75, 100].map(|percent| (f64::from(percent) / 100.0, percent.to_string()));
        frame.grid(&mut svg, &ticks, axis);
        for (at, row) in rows.iter().enumerate() {
            svg.group(&format!("{}: {}", row.label, row.note), |svg| draw_row(svg, &frame, at, row));
        }
        svg.end()
    };
    Chart { wide: draw(Size::Wide), narrow: draw(Size::Narrow) }
}

fn draw_row(svg: &mut Svg, frame: &Frame, at: usize, row: &IntervalBar) {
    let y = frame.middle(at);
    frame.label(svg, at, &row.label);
    let Some(value) = row.value.filter(|value| value.is_finite()) else {
        return frame.nothing(svg, at, &row.note);
    };
    svg.rect("track", frame.left, y - 7.0, frame.right - frame.left, 14.0);
    svg.rect("score", frame.left, y - 7.0, frame.x(value) - frame.left, 14.0);
    if let Some(Interval { low, high }) = row.interval {
        let (low, high) = (frame.x(low), frame.x(high));
        let whisker =
            [[(low, y), (high, y)], [(low, y - 5.0), (low, y + 5.0)], [(high, y - 5.0), (high, y + 5.0)]];
        svg.lines("halo", &whisker);
        svg.lines("whisker", &whisker);
    }
    svg.circle("dot", frame.x(value), y, 4.5);
    for bar in row.bars.iter().filter(|bar| (0.0..=1.0).contains(*bar)) {
        let x = frame.x(*bar);
        svg.line("gate", (x, y - 9.0), (x, y + 9.0));
        svg.polygon("gate-head", &[(x - 4.5, y - 13.0), (x + 4.5, y - 13.0), (x, y - 6.5)]);
    }
    frame.note(svg, at, &row.note);
}
