//! Charts as SVG. They are generic: rows of numbers in, a drawing out. Colours and patterns are classes and custom
//! properties of `style.css`, so a chart follows the theme of its page.
//!
//! Each chart is drawn twice, because text in a scaled drawing cannot be read: once for a wide page, and once for a
//! phone, where labels are above their bars. The style sheet shows one of them.

mod bars;
mod frame;
mod intervals;
mod strip;
mod timeline;

pub use bars::{BarAxis, BarChartRow, draw_bar_chart};
pub use intervals::{AxisRange, IntervalBar, draw_interval_bars};
pub use strip::draw_segment_strip;
pub use timeline::{ThresholdBand, TimelinePoint, TimelineScale, draw_timeline, round_step};

use super::svg::Svg;

/// A chart in both sizes.
#[derive(Debug)]
pub struct ResponsiveChart {
    pub wide: Svg,
    pub narrow: Svg,
}

/// The meaning of a segment of a bar. Each has a pattern besides its colour, for readers who cannot tell the colours
/// apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarFill {
    Right,
    Wrong,
    /// The question has no verdict: it failed, or was not asked.
    Unjudged,
    /// The judge cannot decide the question.
    Abstained,
    NotApplicable,
    Error,
    /// An amount that is neither good nor bad.
    Plain,
}

impl BarFill {
    /// The class in `style.css` that sets colour and pattern.
    pub fn css_class(self) -> &'static str {
        match self {
            BarFill::Right => "f-right",
            BarFill::Wrong => "f-wrong",
            BarFill::Unjudged => "f-unjudged",
            BarFill::Abstained => "f-abstained",
            BarFill::NotApplicable => "f-na",
            BarFill::Error => "f-error",
            BarFill::Plain => "f-plain",
        }
    }
}

/// A segment of a bar, in the unit of its axis. Values that are negative or not finite are drawn as 0.
#[derive(Clone, Copy, Debug)]
pub struct BarSegment {
    pub fill: BarFill,
    pub value: f64,
}

/// Patterns and icons that charts and badges refer to by id. They must be in each page exactly once.
pub fn load_chart_symbols() -> Svg {
    Svg::from_static(include_str!("symbols.svg"))
}

#[cfg(test)]
mod tests;
