//! Builds SVG markup. All text is escaped and all coordinates are finite numbers, so the result may be placed in a page
//! without further escaping ([`HtmlSafe`]). Class names and static markup are our own.

use std::fmt::{self, Write as _};

use askama::filters::{Escaper, Html, HtmlSafe};

/// A drawing in progress; [`Svg::finish`] closes it.
#[derive(Debug)]
pub struct Svg(String);

/// Which part of a text is at its point.
#[derive(Clone, Copy, Debug)]
pub enum TextAnchor {
    Start,
    Middle,
    End,
}

impl Svg {
    /// A drawing of fixed size in pixels. `label` describes it for screen readers (`aria-label`).
    pub fn new(class: &str, width: f64, height: f64, label: &str) -> Svg {
        let mut svg = Svg(String::with_capacity(4_096));
        let (width, height) = (SvgCoordinate(width), SvgCoordinate(height));
        svg.write_markup(format_args!(
            r#"<svg class="{class}" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="{}">"#,
            EscapedText(label)
        ));
        svg
    }

    /// A drawing that takes the width of its container and is distorted by that. Only for bars without text.
    pub fn new_stretched(class: &str, width: f64, height: f64, label: &str) -> Svg {
        let mut svg = Svg(String::new());
        let (width, height) = (SvgCoordinate(width), SvgCoordinate(height));
        svg.write_markup(format_args!(
            r#"<svg class="{class}" viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img" aria-label="{}">"#,
            EscapedText(label)
        ));
        svg
    }

    /// Wraps static markup, which cannot contain text of a trace.
    pub fn from_static(markup: &'static str) -> Svg {
        Svg(markup.to_owned())
    }

    /// Closes the root element.
    pub fn finish(mut self) -> Svg {
        self.0.push_str("</svg>");
        self
    }

    /// A group with a tooltip (`<title>`).
    pub fn group(&mut self, title: &str, draw: impl FnOnce(&mut Svg)) {
        self.write_markup(format_args!("<g><title>{}</title>", EscapedText(title)));
        draw(self);
        self.0.push_str("</g>");
    }

    /// Negative sizes, which SVG forbids, become 0.
    pub fn rect(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) {
        self.write_markup(format_args!(
            r#"<rect class="{class}" x="{}" y="{}" width="{}" height="{}"/>"#,
            SvgCoordinate(x),
            SvgCoordinate(y),
            SvgCoordinate(width.max(0.0)),
            SvgCoordinate(height.max(0.0))
        ));
    }

    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.write_markup(format_args!(
            r#"<line class="{class}" x1="{}" y1="{}" x2="{}" y2="{}"/>"#,
            SvgCoordinate(from.0),
            SvgCoordinate(from.1),
            SvgCoordinate(to.0),
            SvgCoordinate(to.1)
        ));
    }

    /// Several lines as one path element, which keeps the page small.
    pub fn lines(&mut self, class: &str, lines: &[[(f64, f64); 2]]) {
        self.write_markup(format_args!(r#"<path class="{class}" d=""#));
        for [from, to] in lines {
            let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(SvgCoordinate);
            self.write_markup(format_args!("M{x1},{y1}L{x2},{y2}"));
        }
        self.0.push_str(r#""/>"#);
    }

    pub fn circle(&mut self, class: &str, x: f64, y: f64, radius: f64) {
        self.write_markup(format_args!(
            r#"<circle class="{class}" cx="{}" cy="{}" r="{}"/>"#,
            SvgCoordinate(x),
            SvgCoordinate(y),
            SvgCoordinate(radius)
        ));
    }

    pub fn polygon(&mut self, class: &str, points: &[(f64, f64)]) {
        self.write_markup(format_args!(r#"<polygon class="{class}" points=""#));
        for (at, (x, y)) in points.iter().enumerate() {
            let space = if at > 0 { " " } else { "" };
            self.write_markup(format_args!("{space}{},{}", SvgCoordinate(*x), SvgCoordinate(*y)));
        }
        self.0.push_str(r#""/>"#);
    }

    /// A text; its `y` is the baseline.
    pub fn text(&mut self, class: &str, anchor: TextAnchor, x: f64, y: f64, text: &str) {
        let anchor = match anchor {
            TextAnchor::Start => "",
            TextAnchor::Middle => r#" text-anchor="middle""#,
            TextAnchor::End => r#" text-anchor="end""#,
        };
        let (x, y) = (SvgCoordinate(x), SvgCoordinate(y));
        self.write_markup(format_args!(
            r#"<text class="{class}" x="{x}" y="{y}"{anchor}>{}</text>"#,
            EscapedText(text)
        ));
    }

    /// Writing to a `String` cannot fail.
    fn write_markup(&mut self, markup: fmt::Arguments<'_>) {
        self.0.write_fmt(markup).expect("a String takes everything");
    }
}

impl fmt::Display for Svg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl HtmlSafe for Svg {}

/// A text that is escaped for HTML when it is printed, in content and in quoted attributes.
struct EscapedText<'t>(&'t str);

impl fmt::Display for EscapedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Html.write_escaped_str(f, self.0)
    }
}

/// A coordinate with one decimal, which is a tenth of a pixel. NaN and infinities become 0: an invalid number would
/// make a browser drop the whole element.
struct SvgCoordinate(f64);

impl fmt::Display for SvgCoordinate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = if self.0.is_finite() { (self.0 * 10.0).round() / 10.0 } else { 0.0 };
        // Adding 0 turns -0 into 0, which would be printed as `-0`.
        write!(f, "{}", tenths + 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_coordinates_are_numbers() {
        let mut svg = Svg::new("chart", 100.0, 50.04, "\"<&");
        svg.group("</title><script>", |svg| svg.rect("f-right", f64::NAN, -0.01, f64::INFINITY, -3.0));
        svg.text("t", TextAnchor::End, 1.26, 2.0, "a<b>'\"&");
        let svg = svg.finish().to_string();
        assert!(svg.contains(r#"viewBox="0 0 100 50""#), "{svg}");
        assert!(svg.contains(r#"x="0" y="0" width="0" height="0""#), "{svg}");
        assert!(svg.contains(r#"x="1.3" y="2" text-anchor="end">a&#60;b&#62;&#39;&#34;&#38;</text>"#), "{svg}");
        assert!(!svg.contains("<script") && !svg.contains("\"\"<"));
    }
}
