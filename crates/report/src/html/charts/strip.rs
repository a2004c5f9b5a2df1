//! A thin strip that shows the composition of a whole.

use super::BarSegment;
use crate::html::svg::Svg;

const WIDTH: f64 = 240.0;
const HEIGHT: f64 = 10.0;
/// Space between segments.
const GAP: f64 = 1.5;
/// Minimum width of a segment that is not 0, so that it is visible.
const MIN_WIDTH: f64 = 2.0;

/// The segments from left to right, together as wide as the strip. Segments of 0 are left out; without any there is an
/// empty track.
pub fn draw_segment_strip(parts: &[BarSegment], label: &str) -> Svg {
    let mut svg = Svg::new_stretched("strip", WIDTH, HEIGHT, label);
    let there: Vec<&BarSegment> = parts.iter().filter(|part| part.value.is_finite() && part.value > 0.0).collect();
    if there.is_empty() {
        svg.rect("track", 0.0, 0.0, WIDTH, HEIGHT);
        return svg.finish();
    }
    let whole: f64 = there.iter().map(|part| part.value).sum();
    let room = WIDTH - GAP * (there.len() - 1) as f64 - MIN_WIDTH * there.len() as f64;
    let mut x = 0.0;
    for part in there {
        let width = MIN_WIDTH + room * (part.value / whole);
        svg.rect(part.fill.css_class(), x, 0.0, width, HEIGHT);
        x += width + GAP;
    }
    svg.finish()
}
