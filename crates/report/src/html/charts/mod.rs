//! Charts as SVG. They know nothing of runs: rows of numbers go in, a drawing comes out. Colours and patterns are
//! classes and custom properties of `style.css`, so that a chart follows the page it stands in.
//!
//! Each chart is drawn twice, because text in a drawing that is scaled down cannot be read: once for a wide page, and
//! once for a telephone, where labels stand above their bars. The style sheet shows one of them.

mod bars;
mod frame;
mod intervals;
mod strip;
mod timeline;

pub use bars::{BarAxis, ChartBar, draw_bar_chart};
pub use intervals::{AxisRange, IntervalBar, interval_bars};
pub use strip::draw_segment_strip;
pub use timeline::{ThresholdBand, TimelinePoint, TimelineScale, draw_timeline, round_step};

use super::svg::Svg;

/// A chart in both its sizes.
#[derive(Debug)]
pub struct ResponsiveChart {
    pub wide: Svg,
    pub narrow: Svg,
}

/// What a piece of a bar means. Each has its own pattern besides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarFill {
    Right,
    Wrong,
    /// The question arose and was not answered, or was not asked.
    Unjudged,
    NotApplicable,
    Error,
    /// An amount that is neither good nor bad.
    Plain,
}

impl BarFill {
    pub fn css_class(self) -> &'static str {
        match self {
            BarFill::Right => "f-right",
            BarFill::Wrong => "f-wrong",
            BarFill::Unjudged => "f-unjudged",
            BarFill::NotApplicable => "f-na",
            BarFill::Error => "f-error",
            BarFill::Plain => "f-plain",
        }
    }
}

/// A piece of a bar.
#[derive(Clone, Copy, Debug)]
pub struct BarSegment {
    pub fill: BarFill,
    pub value: f64,
}

/// Patterns and icons that charts and pages refer to; once in each page.
pub fn load_chart_symbols() -> Svg {
    Svg::from_static(include_str!("symbols.svg"))
}

#[cfg(test)]
mod tests;
