//! Bars that show when something happened within a run.

use gradus_report::html::svg::Svg;

use super::display_text::format_duration;

/// Width of a bar in its own units; the page stretches it.
const WIDTH: f64 = 400.0;

/// The time from the first start to the last end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeScale {
    from_ns: i64,
    /// At least 1.
    length_ns: i64,
}

impl TimeScale {
    /// Builds the scale. Clocks of senders may run backwards; such a time has no length.
    pub(super) fn from_times(from_ns: i64, to_ns: i64) -> TimeScale {
        TimeScale { from_ns, length_ns: to_ns.saturating_sub(from_ns).max(1) }
    }

    /// Draws a bar. It is at least 1.5 units wide, so that short ones stay visible. Times outside are moved inside.
    pub(super) fn draw_bar(self, class: &str, start_ns: i64, end_ns: i64) -> Svg {
        let began = format_duration(start_ns.saturating_sub(self.from_ns));
        let took = format_duration(end_ns.saturating_sub(start_ns));
        let mut svg = Svg::new_stretched("waterfall", WIDTH, 12.0, &format!("starts after {began}, duration {took}"));
        let place = |ns: i64| {
            let share = ns.saturating_sub(self.from_ns) as f64 / self.length_ns as f64;
            share.clamp(0.0, 1.0) * WIDTH
        };
        let (from, to) = (place(start_ns).min(WIDTH - 1.5), place(end_ns));
        svg.rect("w-track", 0.0, 5.5, WIDTH, 1.0);
        svg.rect(class, from, 1.0, (to - from).max(1.5), 10.0);
        svg.finish()
    }
}
