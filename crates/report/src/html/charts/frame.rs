//! The layout of charts with rows: labels, the plot with its grid, notes at the right, the axis below. Units are
//! pixels.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::html::svg::{Svg, TextAnchor};

/// Approximate width of a character of chart text, used to cut labels, because text cannot be measured here.
const CHARACTER_WIDTH: f64 = 7.4;
/// Height of the axis below the rows: numbers and title.
const AXIS_HEIGHT: f64 = 40.0;
const TOP_MARGIN: f64 = 8.0;

/// The two sizes in which every chart is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) enum ChartSize {
    Wide,
    Narrow,
}

/// The geometry of a chart with a number of rows of equal height.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChartFrame {
    size: ChartSize,
    rows: usize,
    width: f64,
    /// The left and right side of the plot.
    pub left: f64,
    pub right: f64,
    row_height: f64,
}

impl ChartFrame {
    /// Both sizes leave 60 to 70 pixels right of the plot for notes.
    pub(super) fn new(size: ChartSize, rows: usize) -> ChartFrame {
        match size {
            ChartSize::Wide => ChartFrame { size, rows, width: 760.0, left: 236.0, right: 688.0, row_height: 34.0 },
            ChartSize::Narrow => ChartFrame { size, rows, width: 336.0, left: 6.0, right: 268.0, row_height: 48.0 },
        }
    }

    /// An empty drawing of the right size and class.
    pub(super) fn start_svg(&self, label: &str) -> Svg {
        let class = match self.size {
            ChartSize::Wide => "chart wide",
            ChartSize::Narrow => "chart narrow",
        };
        Svg::new(class, self.width, self.bottom() + AXIS_HEIGHT, label)
    }

    /// The position of a share of the axis, clamped to the plot.
    pub(super) fn share_to_x(&self, share: f64) -> f64 {
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        self.left + share * (self.right - self.left)
    }

    /// The vertical middle of a row's bar. In the narrow size the label is above it.
    pub(super) fn row_middle(&self, row: usize) -> f64 {
        let below = match self.size {
            ChartSize::Wide => self.row_height / 2.0,
            ChartSize::Narrow => self.row_height - 16.0,
        };
        TOP_MARGIN + row as f64 * self.row_height + below
    }

    fn bottom(&self) -> f64 {
        TOP_MARGIN + self.rows as f64 * self.row_height
    }

    /// The name of a row: left of the plot, or above the bar in the narrow size.
    pub(super) fn draw_label(&self, svg: &mut Svg, row: usize, text: &str) {
        let middle = self.row_middle(row);
        match self.size {
            ChartSize::Wide => {
                svg.text(
                    "label",
                    TextAnchor::End,
                    self.left - 12.0,
                    middle + 4.5,
                    &fit_chart_text(text, self.left - 14.0),
                );
            }
            ChartSize::Narrow => {
                svg.text(
                    "label",
                    TextAnchor::Start,
                    self.left,
                    middle - 16.0,
                    &fit_chart_text(text, self.width - self.left),
                );
            }
        }
    }

    /// The number of a row, right of the plot.
    pub(super) fn draw_note(&self, svg: &mut Svg, row: usize, text: &str) {
        let text = fit_chart_text(text, self.width - self.right - 8.0);
        svg.text("note", TextAnchor::End, self.width - 1.0, self.row_middle(row) + 4.5, &text);
    }

    /// Draws a text in place of a bar.
    pub(super) fn draw_placeholder(&self, svg: &mut Svg, row: usize, text: &str) {
        let text = fit_chart_text(text, self.width - self.left - 8.0);
        svg.text("nothing", TextAnchor::Start, self.left + 6.0, self.row_middle(row) + 4.5, &text);
    }

    /// Grid lines at shares of the axis with their labels, and the title of the axis.
    pub(super) fn draw_grid(&self, svg: &mut Svg, ticks: &[(f64, String)], title: &str) {
        let bottom = self.bottom();
        for (share, text) in ticks {
            let x = self.share_to_x(*share);
            svg.line(if *share == 0.0 { "axis" } else { "grid" }, (x, TOP_MARGIN), (x, bottom + 4.0));
            // In the narrow size there is no room left of the plot, so the first label begins at its side.
            let anchor = if *share == 0.0 && self.left < 10.0 { TextAnchor::Start } else { TextAnchor::Middle };
            let x = if matches!(anchor, TextAnchor::Start) { x - 3.0 } else { x };
            svg.text("tick", anchor, x, bottom + 17.0, text);
        }
        svg.text("title", TextAnchor::Middle, (self.left + self.right) / 2.0, bottom + 35.0, title);
    }
}

/// Cuts a text to about `width` pixels, with an ellipsis. Wide characters (CJK, emoji) count twice.
pub(super) fn fit_chart_text(text: &str, width: f64) -> String {
    let columns = (width / CHARACTER_WIDTH).max(1.0) as usize;
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut used = 1;
    let start: String = text
        .chars()
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= columns
        })
        .collect();
    format!("{start}…")
}
