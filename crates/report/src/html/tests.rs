//! The page as a whole. `GRADUS_REPORT_DIR=DIR cargo test -p gradus html` also writes the pages to a folder, to look at.

use gradus_eval::report::{EvaluationSummary, GateResult, MetricResult};

use super::example;
use crate::report_table::{ReportTable, TableColumn};

fn render(name: &str, summary: &EvaluationSummary, gates: &[GateResult]) -> String {
    let mut page = Vec::new();
    super::write_html_report(summary, gates, &[], &mut page).unwrap();
    if let Some(folder) = std::env::var_os("GRADUS_REPORT_DIR") {
        std::fs::write(std::path::Path::new(&folder).join(format!("{name}.html")), &page).unwrap();
    }
    String::from_utf8(page).unwrap()
}

/// One section of a page with every tag on a line of its own, so that a difference is a line and not a whole chart.
fn section(page: &str, id: &str) -> String {
    let start = page.find(&format!("<section id=\"{id}\"")).unwrap_or_else(|| panic!("no section {id}"));
    let length = page[start..].find("</section>").expect("the section's end") + "</section>".len();
    page[start..start + length].replace("><", ">\n<")
}

/// A page's tags with their attributes, as a browser would see them; panics where it would have to guess.
fn tags(page: &str) -> Vec<(String, Vec<(String, String)>)> {
    let mut tags = Vec::new();
    let mut open: Vec<String> = Vec::new();
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        assert!(!rest[..at].contains('>') || open.last().is_some_and(|tag| tag == "style"), "{}", &rest[..at]);
        rest = &rest[at + 1..];
        let end = rest.find(|c: char| c.is_whitespace() || c == '>' || c == '/').filter(|end| *end > 0);
        let name = rest[..end.unwrap_or(1)].to_owned();
        if let Some(closed) = rest.strip_prefix('/') {
            let (name, behind) = closed.split_once('>').expect("the tag's end");
            assert_eq!(open.pop().as_deref(), Some(name), "closes what was opened");
            rest = behind;
            continue;
        }
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '!'), "a tag of ours: {name:?}");
        rest = &rest[name.len()..];
        let mut attributes = Vec::new();
        let closes_itself = loop {
            rest = rest.trim_start();
            if let Some(behind) = rest.strip_prefix("/>") {
                rest = behind;
                break true;
            }
            if let Some(behind) = rest.strip_prefix('>') {
                rest = behind;
                break false;
            }
            let end = rest.find(['=', '>', ' ']).expect("the attribute's end");
            let attribute = rest[..end].to_owned();
            rest = &rest[end..];
            let mut value = String::new();
            if let Some(quoted) = rest.strip_prefix("=\"") {
                let (inside, behind) = quoted.split_once('"').expect("the value's end");
                assert!(behind.starts_with([' ', '>', '/']), "a quote inside of a value: {inside}\"{behind:.20}");
                inside.clone_into(&mut value);
                rest = behind;
            }
            attributes.push((attribute, value));
        };
        let is_void = matches!(name.as_str(), "!doctype" | "meta" | "link");
        if !closes_itself && !is_void {
            open.push(name.clone());
        }
        tags.push((name, attributes));
    }
    assert!(open.is_empty(), "{open:?}");
    tags
}

/// Nothing in the page does anything but stand there.
fn assert_harmless(page: &str) {
    const TAGS: &str = "!doctype html head meta title link style body a header main footer nav section div span p b \
        strong h1 h2 h3 ul li dl dt dd bdi code pre details summary figure figcaption table thead tbody \
        tfoot tr th td svg g defs pattern symbol use path rect line circle polygon text";
    const ATTRIBUTES: &str = "html lang charset content name rel href class id tabindex role scope dir open colspan width \
        height viewBox preserveAspectRatio x y x1 y1 x2 y2 cx cy r d points opacity text-anchor \
        patternUnits patternTransform focusable aria-hidden aria-label aria-labelledby http-equiv data-label";
    for (tag, attributes) in tags(page) {
        assert!(TAGS.split(' ').any(|known| known == tag), "<{tag}>");
        for (attribute, value) in attributes {
            assert!(ATTRIBUTES.split(' ').any(|known| known == attribute), "{attribute} of <{tag}>");
            if attribute == "href" {
                assert!(value.starts_with('#') || value.starts_with("data:image/svg+xml,"), "{value}");
            }
        }
    }
    let is_bidi = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    assert!(!page.contains(|c: char| (c.is_control() && c != '\n') || is_bidi(c)));
}

#[test]
fn hostile_strings_stay_text() {
    let strings = [
        "<script>alert(1)</script>\"'&\u{0}\u{1b}[31m\u{202e}\u{2066}\u{9b}",
        "\" onmouseover=\"alert(1)",
        "' onfocus='alert(1)' x='",
        "</style></title></svg></pre></details><img src=x onerror=alert(1)>",
        "<!-- -->]]>{{ 1 }}{% raw %}&lt;b&gt;",
        "javascript:alert(1)",
    ];
    for (at, hostile) in strings.into_iter().enumerate() {
        let (summary, gates) = example::filled_with(hostile);
        let page = render(&format!("hostile-{at}"), &summary, &gates);
        assert_harmless(&page);
        assert!(!page.to_ascii_lowercase().contains("<script") && !page.contains("<img"));
    }
}

#[test]
fn long_strings_are_cut() {
    let (summary, gates) = example::filled_with(&"W".repeat(1_000_000));
    let page = render("long", &summary, &gates);
    assert!(page.contains("Truncated: the full text has 1,000,000 characters."));
    assert!(page.len() < 250_000, "{}", page.len());
    assert_harmless(&page);
}

#[test]
fn shows_the_numbers() {
    let (summary, gates) = example::ordinary();
    let page = render("ordinary", &summary, &gates);
    assert_harmless(&page);
    assert!(page.len() < 100_000, "{}", page.len());
    assert!(page.contains(example::JUDGE) && page.contains("2026-03-02 09:41 UTC"));
    assert!(!page.contains("Judged by rules, not by a model") && !page.contains("Stopped early"));
    for id in ["outcome", "gates", "failure-groups", "results", "tools", "findings", "reasons", "cost"] {
        insta::assert_snapshot!(format!("ordinary_{id}"), section(&page, id));
    }
}

#[test]
fn shows_the_tables_of_a_supplement() {
    let column = |name: &str, is_number| TableColumn { name: name.to_owned(), is_number };
    let table = ReportTable {
        title: "Benchmark",
        about: "Each agent plays the same tasks.",
        note: Some("Intervals are Wilson's, at 95 %.".to_owned()),
        columns: vec![column("agent", false), column("success", true), column("calls", true)],
        rows: [["agent.sh (mine)", "100.0 % (61.0–100.0)", "12"], ["<b>scripted</b>", "50.0 % (18.8–81.2)", "31"]]
            .map(|row| row.map(str::to_owned).to_vec())
            .to_vec(),
    };
    let mut page = Vec::new();
    super::write_html_report(&example::empty(), &[], &[table], &mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    assert_harmless(&page);
    insta::assert_snapshot!(section(&page, "benchmark"));
}

#[test]
fn the_same_run_is_the_same_page() {
    let (summary, gates) = example::ordinary();
    assert_eq!(render("ordinary", &summary, &gates), render("ordinary", &summary, &gates));
}

#[test]
fn says_that_there_is_nothing() {
    let page = render("empty", &example::empty(), &[]);
    assert_harmless(&page);
    for expected in ["Judged by rules, not by a model.", "This run stopped early.", "interrupted"] {
        assert!(page.contains(expected), "{expected}");
    }
    let sections = ["results", "tools", "findings", "reasons", "cost"].map(|id| section(&page, id));
    assert!(!page.contains("id=\"gates\"") && !page.contains("id=\"outcome\""), "nothing is said of what is not there");
    insta::assert_snapshot!(sections.join("\n"));
}

#[test]
fn rules_that_found_nothing_are_not_called_right() {
    let page = render("rules", &example::by_rules(), &[]);
    assert_harmless(&page);
    for id in ["results", "reasons"] {
        insta::assert_snapshot!(format!("rules_{id}"), section(&page, id));
    }
}

#[test]
fn endings_are_chips_that_lead_to_their_runs() {
    let mut summary = example::by_rules();
    let crashed = |at: usize| {
        let (ordinary, _) = example::ordinary();
        let mut found = ordinary.findings[at].clone();
        found.step_index = None;
        found.verdicts.truncate(1);
        (found.verdicts[0].evaluator, found.verdicts[0].label) = ("outcome".to_owned(), "crashed".to_owned());
        found
    };
    summary.findings = example::ordinary().0.findings;
    summary.findings.push(crashed(0));
    let page = render("endings", &summary, &[]);
    assert_harmless(&page);
    let link = format!("href=\"#finding-{}\" class=\"ending wrong\"", summary.findings.len());
    assert!(page.contains(&link) && page.contains(&format!("id=\"finding-{}\"", summary.findings.len())));
    insta::assert_snapshot!("endings_outcome", section(&page, "outcome"));
}

#[test]
fn a_run_without_a_fault_says_so() {
    let (mut summary, gates) = example::ordinary();
    summary.findings.clear();
    let page = render("faultless", &summary, &gates);
    assert!(page.contains("No judged step or trajectory was flagged."));
}

#[test]
fn what_is_not_known_is_never_a_number() {
    let (mut summary, gates) = example::ordinary();
    summary.judge = "offline".to_owned();
    summary.cost.usd = None;
    for part in &mut summary.cost.by_evaluator {
        part.usd = None;
    }
    summary.metrics[0] = MetricResult {
        failed: 224,
        title: "Thought to tool".to_owned(),
        name: "t".to_owned(),
        ..MetricResult::default()
    };
    summary.metrics[1].value = Some(f64::NAN);
    summary.metrics[2].interval = None;
    // Scores from 1 to 5.
    summary.metrics[3].value = Some(3.25);
    summary.metrics[3].is_share = false;
    summary.metrics[3].numerator = 728.0;
    let page = render("unknown", &summary, &gates);
    assert_harmless(&page);
    assert!(!page.contains("325.0") && !page.contains("NaN"));
    insta::assert_snapshot!("unknown_results", section(&page, "results"));
    insta::assert_snapshot!("unknown_cost", section(&page, "cost"));
}

#[test]
fn many_tools_sources_and_reasons_are_summed_up() {
    let (mut summary, gates) = example::ordinary();
    summary.tools = (0..150)
        .map(|at| gradus_eval::report::ToolUse { tool: format!("tool_{at}"), ..summary.tools[0].clone() })
        .collect();
    summary.sources = (0..150).map(|at| format!("source_{at}")).collect();
    summary.reasons = (0..150).map(|_| summary.reasons[0].clone()).collect();
    let page = render("many", &summary, &gates);
    assert!(page.contains("138 other tools") && page.contains("50 more tools are not listed."));
    assert!(page.contains("96 more</summary>") && page.contains("and 50 that are not listed"));
    assert!(page.contains("50 more reasons are not listed."));
}

#[test]
fn a_run_with_as_much_as_a_summary_keeps_is_still_small() {
    let (mut summary, gates) = example::ordinary();
    summary.findings = summary.findings.iter().cycle().take(50).cloned().collect();
    let page = render("fifty", &summary, &gates);
    assert!(page.len() < 150_000, "{}", page.len());
}
