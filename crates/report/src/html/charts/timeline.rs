//! A value over time: a line, its confidence band, and the ranges in which an alert fires.

use gradus_stats::interval::ConfidenceInterval;

use super::ResponsiveChart;
use super::frame::ChartSize;
use crate::html::svg::{Svg, TextAnchor};

/// The value of one period, such as a rollup bucket.
#[derive(Clone, Debug)]
pub struct TimelinePoint {
    /// Position on the time axis, from 0 to 1.
    pub at: f64,
    /// In the unit of the scale.
    pub value: f64,
    pub interval: Option<ConfidenceInterval>,
    /// The tooltip.
    pub title: String,
    /// Whether the period directly before has a point. A gap in the data is a gap in the line.
    pub follows: bool,
}

/// A range in which an alert fires, and when it fired.
#[derive(Clone, Debug, PartialEq)]
pub struct ThresholdBand {
    pub threshold: f64,
    /// The alert fires below the threshold, else above it.
    pub is_below: bool,
    /// From and to, as positions on the time axis, from 0 to 1.
    pub fired: Vec<(f64, f64)>,
}

/// The vertical axis: its ends, and the format of its labels.
#[derive(Clone, Copy, Debug)]
pub struct TimelineScale {
    pub low: f64,
    pub high: f64,
    /// Number of intervals between grid lines.
    pub steps: u32,
    pub format: fn(f64) -> String,
}

impl TimelineScale {
    /// Shares from 0 to 100 %.
    pub const SHARE: TimelineScale = TimelineScale { low: 0.0, high: 1.0, steps: 4, format: share_tick };

    /// A scale from 0 to a round number that is not below `most`, in two to four round steps. `step` rounds a number
    /// up: time and money have other round numbers than counts.
    pub fn up_to(most: f64, step: fn(f64) -> f64, format: fn(f64) -> String) -> TimelineScale {
        const STEPS: u32 = 4;
        let step = step(if most > 0.0 { most / f64::from(STEPS) } else { 1.0 });
        // Rounding up can make the last step unnecessary.
        let steps = ((most / step).ceil() as u32).clamp(2, STEPS);
        TimelineScale { low: 0.0, high: step * f64::from(steps), steps, format }
    }

    /// Width of the longest label of the axis, in pixels.
    fn label_width(&self) -> f64 {
        const PIXELS_PER_CHAR: f64 = 7.2;
        let longest = self.ticks().map(|(_, text)| text.chars().count()).max().unwrap_or(0);
        longest as f64 * PIXELS_PER_CHAR + 8.0
    }

    /// Values of the grid lines with their labels, from the lowest on.
    fn ticks(&self) -> impl Iterator<Item = (f64, String)> + '_ {
        (0..=self.steps).map(|step| {
            let value = self.low + (self.high - self.low) * f64::from(step) / f64::from(self.steps);
            (value, (self.format)(value))
        })
    }

    fn axis_fraction(&self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low).max(f64::MIN_POSITIVE)
    }
}

/// Only the last label has the unit.
fn share_tick(share: f64) -> String {
    let percent = 100.0 * share;
    if percent >= 100.0 { "100 %".to_owned() } else { format!("{percent:.0}") }
}

/// The smallest of 1, 2, 2.5, 5 and 10 times a power of ten that is not below `number`, which must be positive. The
/// tolerance absorbs rounding errors of the logarithm.
pub fn round_step(number: f64) -> f64 {
    let power = 10_f64.powf(number.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0]
        .map(|one| one * power)
        .into_iter()
        .find(|one| *one >= number * (1.0 - 1e-9))
        .unwrap_or(number)
}

/// The geometry of the plot, in pixels.
struct TimelinePlot {
    scale: TimelineScale,
    width: f64,
    left: f64,
    right: f64,
    bottom: f64,
}

const TOP_MARGIN: f64 = 10.0;

impl TimelinePlot {
    fn share_to_x(&self, share: f64) -> f64 {
        self.left + share.clamp(0.0, 1.0) * (self.right - self.left)
    }

    fn value_to_y(&self, value: f64) -> f64 {
        self.bottom - self.scale.axis_fraction(value).clamp(0.0, 1.0) * (self.bottom - TOP_MARGIN)
    }
}

/// Draws the points, which must be in order of time. `ticks` are positions on the time axis, from 0 to 1, with their
/// labels.
pub fn draw_timeline(
    points: &[TimelinePoint],
    bands: &[ThresholdBand],
    ticks: &[(f64, String)],
    scale: TimelineScale,
    label: &str,
) -> ResponsiveChart {
    let draw = |size| {
        let (class, plot) = match size {
            ChartSize::Wide => {
                let left = scale.label_width().max(44.0);
                ("chart wide", TimelinePlot { scale, width: 560.0, left, right: 548.0, bottom: 150.0 })
            }
            ChartSize::Narrow => {
                let left = scale.label_width().max(40.0);
                ("chart narrow", TimelinePlot { scale, width: 336.0, left, right: 328.0, bottom: 150.0 })
            }
        };
        let mut svg = Svg::new(class, plot.width, plot.bottom + 24.0, label);
        draw_axes(&mut svg, &plot, ticks);
        for band in bands {
            let y = plot.value_to_y(band.threshold);
            let (from, to) = if band.is_below { (y, plot.bottom) } else { (TOP_MARGIN, y) };
            svg.rect("alarm", plot.left, from, plot.right - plot.left, to - from);
            svg.line("gate", (plot.left, y), (plot.right, y));
            for (from, to) in &band.fired {
                // Minimum width, so that a short range is visible.
                let from = plot.share_to_x(*from).min(plot.right - 2.0);
                svg.rect("fired", from, TOP_MARGIN, (plot.share_to_x(*to) - from).max(2.0), plot.bottom - TOP_MARGIN);
            }
        }
        draw_points(&mut svg, &plot, points);
        svg.finish()
    };
    ResponsiveChart { wide: draw(ChartSize::Wide), narrow: draw(ChartSize::Narrow) }
}

fn draw_axes(svg: &mut Svg, plot: &TimelinePlot, ticks: &[(f64, String)]) {
    for (at, (value, text)) in plot.scale.ticks().enumerate() {
        let y = plot.value_to_y(value);
        svg.line(if at == 0 { "axis" } else { "grid" }, (plot.left, y), (plot.right, y));
        svg.text("tick", TextAnchor::End, plot.left - 6.0, y + 4.0, &text);
    }
    for (share, text) in ticks {
        let anchor = match *share {
            share if share < 0.08 => TextAnchor::Start,
            share if share > 0.92 => TextAnchor::End,
            _ => TextAnchor::Middle,
        };
        svg.line("axis", (plot.share_to_x(*share), plot.bottom), (plot.share_to_x(*share), plot.bottom + 4.0));
        svg.text("tick", anchor, plot.share_to_x(*share), plot.bottom + 18.0, text);
    }
}

/// The confidence band first, then the line, then the points, so that points are on top and get the pointer.
fn draw_points(svg: &mut Svg, plot: &TimelinePlot, points: &[TimelinePoint]) {
    for pair in points.windows(2).filter(|pair| pair[1].follows) {
        if let (Some(a), Some(b)) = (pair[0].interval, pair[1].interval) {
            let (from, to) = (plot.share_to_x(pair[0].at), plot.share_to_x(pair[1].at));
            let corners = [
                (from, plot.value_to_y(a.high)),
                (to, plot.value_to_y(b.high)),
                (to, plot.value_to_y(b.low)),
                (from, plot.value_to_y(a.low)),
            ];
            svg.polygon("area", &corners);
        }
    }
    let lines: Vec<[(f64, f64); 2]> = points
        .windows(2)
        .filter(|pair| pair[1].follows)
        .map(|pair| [0, 1].map(|at| (plot.share_to_x(pair[at].at), plot.value_to_y(pair[at].value))))
        .collect();
    if !lines.is_empty() {
        svg.lines("trend", &lines);
    }
    for (at, point) in points.iter().enumerate() {
        let (x, y) = (plot.share_to_x(point.at), plot.value_to_y(point.value));
        let is_alone = !point.follows && !points.get(at + 1).is_some_and(|next| next.follows);
        svg.group(&point.title, |svg| {
            // A point without neighbours has no band; its interval is a vertical line.
            if let Some(ConfidenceInterval { low, high }) = point.interval.filter(|_| is_alone) {
                svg.lines("stem", &[[(x, plot.value_to_y(low)), (x, plot.value_to_y(high))]]);
            }
            svg.circle("dot", x, y, 4.0);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_no_line_and_the_alarm_is_marked() {
        let point = |at: f64, value: f64, follows: bool| TimelinePoint {
            at,
            value,
            interval: Some(ConfidenceInterval { low: value - 0.1, high: value + 0.1 }),
            title: "<b>".to_owned(),
            follows,
        };
        let points = [point(0.0, 0.5, false), point(0.5, 0.75, true), point(1.0, 1.0, false)];
        let band = ThresholdBand { threshold: 0.5, is_below: true, fired: Vec::new() };
        let chart = draw_timeline(&points, &[band], &[(0.0, "Mon".to_owned())], TimelineScale::SHARE, "Scores");
        let wide = chart.wide.to_string();
        assert_eq!(wide.matches("class=\"dot\"").count(), 3);
        assert_eq!(wide.matches("class=\"area\"").count(), 1);
        let scale = TimelineScale { low: 1.0, high: 5.0, steps: 4, format: |value| format!("{value:.0} of 5") };
        let other = draw_timeline(&[point(0.5, 5.0, false)], &[], &[], scale, "").wide.to_string();
        // Room for the longest label: 6 characters.
        assert!(other.contains("5 of 5") && other.contains(r#"<circle class="dot" cx="299.6" cy="10""#), "{other}");
        assert!(wide.contains("&#60;b&#62;") && !wide.contains("<b>"), "{wide}");
        assert!(!draw_timeline(&[], &[], &[], TimelineScale::SHARE, "").narrow.to_string().contains("trend"));
    }

    #[test]
    fn an_axis_has_round_numbers() {
        let shown = |most: f64| {
            let scale = TimelineScale::up_to(most, round_step, |value| value.to_string());
            (scale.high, scale.steps)
        };
        assert_eq!([0.0, 3.3, 4.0, 0.7].map(shown), [(2.0, 2), (4.0, 4), (4.0, 4), (0.8, 4)]);
        assert_eq!([9.0, 11.0, 1e9].map(shown), [(10.0, 4), (15.0, 3), (1e9, 4)]);
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..2_000 {
            let most = 10_f64.powf(random.f64() * 24.0 - 6.0);
            let (high, steps) = shown(most);
            assert!(high >= most * (1.0 - 1e-6) && high <= 2.6 * most && (2..=4).contains(&steps), "{most}: {high}");
        }
    }
}
