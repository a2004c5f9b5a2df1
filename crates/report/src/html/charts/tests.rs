//! What the charts look like, and that no drawing leaves its frame, whatever numbers go in.

use gradus_stats::interval::ConfidenceInterval;

use super::*;

/// All coordinates are numbers inside of the view box.
fn assert_inside(svg: &Svg) {
    let svg = svg.to_string();
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    let numbers = |text: &str| -> Vec<f64> {
        text.split([' ', ',', 'M', 'L'])
            .filter(|number| !number.is_empty())
            .map(|number| number.parse().unwrap_or_else(|_| panic!("{number} in {svg}")))
            .collect()
    };
    let view = svg.split_once("viewBox=\"").and_then(|(_, rest)| rest.split_once('"')).expect("a view box").0;
    let [_, _, width, height] = numbers(view)[..] else { panic!("{view}") };
    for tag in svg.split('<').skip(2) {
        let value = |name: &str| {
            let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
            Some(numbers(rest.split_once('"')?.0))
        };
        let one = |name: &str| value(name).map(|numbers| numbers[0]);
        let within = |at: f64, end: f64| assert!((-0.01..=end + 0.01).contains(&at), "{tag} in {width} x {height}");
        for x in ["x", "x1", "x2", "cx"].iter().filter_map(|name| one(name)) {
            within(x, width);
        }
        for y in ["y", "y1", "y2", "cy"].iter().filter_map(|name| one(name)) {
            within(y, height);
        }
        if let (Some(x), Some(y), Some(w), Some(h)) = (one("x"), one("y"), one("width"), one("height")) {
            assert!(w >= 0.0 && h >= 0.0);
            within(x + w, width);
            within(y + h, height);
        }
        for point in [value("points"), value("d")].into_iter().flatten().flatten().collect::<Vec<_>>().chunks(2) {
            within(point[0], width);
            within(point[1], height);
        }
    }
}

fn assert_both_inside(chart: &ResponsiveChart) {
    assert_inside(&chart.wide);
    assert_inside(&chart.narrow);
}

const ODD: [f64; 9] = [0.0, 1.0, 0.5, -1.0, 2.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX];

#[test]
fn shares_stay_inside() {
    let mut rows = vec![IntervalBar::default()];
    for value in ODD {
        for (low, high) in [(0.0, 1.0), (value, value), (-0.5, 1.5), (f64::NAN, f64::INFINITY)] {
            rows.push(IntervalBar {
                label: "a long label that goes on and on, 漢字漢字漢字".to_owned(),
                value: Some(value),
                interval: Some(ConfidenceInterval { low, high }),
                bars: ODD.to_vec(),
                note: "note".to_owned(),
            });
        }
    }
    assert_both_inside(&draw_interval_bars(&rows, AxisRange::PERCENT, "share (%)", "scores"));
    assert_both_inside(&draw_interval_bars(&[], AxisRange::PERCENT, "share (%)", "scores"));
}

#[test]
fn amounts_stay_inside() {
    let row = |value: f64| BarChartRow {
        label: String::new(),
        segments: vec![BarSegment { fill: BarFill::Right, value }, BarSegment { fill: BarFill::Wrong, value: 3.0 }],
        below: Some(BarSegment { fill: BarFill::Error, value }),
        note: "12".to_owned(),
        placeholder: None,
    };
    let axis = BarAxis { title: "calls", whole: true, format: |number| number.to_string() };
    for value in ODD.into_iter().filter(|value| *value != f64::MAX).chain([1e-300, 1e12]) {
        assert_both_inside(&draw_bar_chart(&[row(value), row(1.0)], axis, "amounts"));
    }
    assert_both_inside(&draw_bar_chart(&[], axis, "amounts"));
}

#[test]
fn pieces_stay_inside() {
    for value in ODD.into_iter().filter(|value| *value != f64::MAX) {
        let part = |fill| BarSegment { fill, value };
        assert_inside(&draw_segment_strip(&[], "nothing"));
        assert_inside(&draw_segment_strip(
            &[part(BarFill::Right), part(BarFill::Wrong), BarSegment { fill: BarFill::Plain, value: 1e-9 }],
            "x",
        ));
    }
}

#[test]
fn a_long_label_is_cut_to_its_room() {
    assert_eq!(frame::fit_chart_text("search", 74.0), "search");
    assert_eq!(frame::fit_chart_text("search_the_web", 74.0), "search_th…");
    assert_eq!(frame::fit_chart_text("漢字漢字漢字", 74.0), "漢字漢字…");
}

/// A drawing with every element on a line of its own.
fn element_lines(svg: &Svg) -> String {
    svg.to_string().replace("><", ">\n<")
}

#[test]
fn a_chart_of_intervals() {
    let rows = [
        IntervalBar {
            label: "Thought to tool".to_owned(),
            value: Some(0.873),
            interval: Some(ConfidenceInterval { low: 0.805, high: 0.924 }),
            bars: vec![0.85, 1.5],
            note: "87.3 %".to_owned(),
        },
        IntervalBar {
            label: "Call validity".to_owned(),
            note: "nothing was judged".to_owned(),
            ..IntervalBar::default()
        },
    ];
    let chart = draw_interval_bars(&rows, AxisRange::PERCENT, "score (% of judged)", "Scores");
    insta::assert_snapshot!("intervals_wide", element_lines(&chart.wide));
    insta::assert_snapshot!("intervals_narrow", element_lines(&chart.narrow));
}

#[test]
fn a_chart_of_differences_has_bars_on_both_sides() {
    let row = |label: &str, value: f64| IntervalBar {
        label: label.to_owned(),
        value: Some(value),
        interval: Some(ConfidenceInterval { low: value - 0.1, high: value + 0.1 }),
        bars: Vec::new(),
        note: format!("{value:+.2}"),
    };
    let ends = AxisRange { low: -0.5, high: 0.5, format: |value| format!("{value:+.2}") };
    let chart = draw_interval_bars(&[row("worse", -0.25), row("better", 0.25)], ends, "difference", "Differences");
    insta::assert_snapshot!(element_lines(&chart.wide));
}

#[test]
fn a_chart_of_amounts() {
    let row = |label: &str, right: f64, wrong: f64, errors: f64| BarChartRow {
        label: label.to_owned(),
        segments: vec![
            BarSegment { fill: BarFill::Right, value: right },
            BarSegment { fill: BarFill::Wrong, value: wrong },
        ],
        below: Some(BarSegment { fill: BarFill::Error, value: errors }),
        note: (right + wrong).to_string(),
        placeholder: None,
    };
    let rows = [
        row("search_flights", 64.0, 5.0, 3.0),
        row("get_weather_forecast_for_destination", 11.0, 5.0, 0.0),
        BarChartRow { placeholder: Some("no model called".to_owned()), ..row("rules", 0.0, 0.0, 0.0) },
    ];
    let axis = BarAxis { title: "calls", whole: true, format: |number| number.to_string() };
    let chart = draw_bar_chart(&rows, axis, "Calls");
    insta::assert_snapshot!("amounts_wide", element_lines(&chart.wide));
    insta::assert_snapshot!("amounts_narrow", element_lines(&chart.narrow));
}

#[test]
fn a_strip_shows_its_segments() {
    let part = |fill, value| BarSegment { fill, value };
    let parts = [part(BarFill::Right, 185.0), part(BarFill::Wrong, 27.0), part(BarFill::NotApplicable, 0.0)];
    insta::assert_snapshot!(element_lines(&draw_segment_strip(&parts, "Outcomes")));
}

#[test]
fn a_timeline_with_a_gap_and_an_alert() {
    let point = |at: f64, value: f64, follows| TimelinePoint {
        at,
        value,
        interval: Some(ConfidenceInterval { low: value - 0.1, high: value + 0.1 }),
        title: format!("{:.0} %", 100.0 * value),
        follows,
    };
    let points = [point(0.0, 0.5, false), point(0.5, 0.75, true), point(1.0, 0.9, false)];
    let band = ThresholdBand { threshold: 0.5, is_below: true, fired: Vec::new() };
    let ticks = [(0.0, "Mon".to_owned()), (0.5, "Tue".to_owned())];
    let chart = draw_timeline(&points, &[band], &ticks, TimelineScale::SHARE, "Scores");
    insta::assert_snapshot!("timeline_wide", element_lines(&chart.wide));
    insta::assert_snapshot!("timeline_narrow", element_lines(&chart.narrow));
}
