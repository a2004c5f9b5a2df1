//! Agreement of people with the judge for each evaluator (Cohen's kappa, confusion matrix), the disagreements, and
//! links to download all labels.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use gradus_stats::agreement::{ConstantRater, LabelPair, compute_agreement};
use gradus_store::{LabelRow, RetentionPolicy};
use serde::Deserialize;

use super::address::PageUrl;
use super::blind_sample::UNDECIDED_LABEL;
use super::display_text::format_timestamp;
use super::loaded_trace;
use super::render::{self, PageError, PageQuery};
use super::{PageLayout, SelectOption, build_project_options};
use crate::evaluators::{find_answer_labels, find_evaluator_title, format_verdict_subject};
use crate::http_error::ApiError;
use crate::page::label_authors::KeyNameSet;
use crate::settings::ReloadableSettings;
use crate::state::ServerState;
use gradus_report::html::charts::{AxisRange, IntervalBar, ResponsiveChart, draw_interval_bars};
use gradus_report::html::number::{self, format_count};
use gradus_report::html::text;

/// Maximum number of labels that the review page computes agreement from. Fewer than here, because that page is
/// loaded after every label.
pub(super) const MAX_REVIEW_LABELS: usize = 2_000;
/// Maximum number of labels that are read, latest first.
const MAX_LABELS: usize = 10_000;
/// Maximum number of disagreements in the list.
const MAX_LISTED_DISAGREEMENTS: usize = 50;
/// Maximum number of labels outside of the rubric with a row of their own in the confusion matrix. The API accepts
/// any label, so there may be thousands.
const MAX_UNKNOWN_LABELS: usize = 8;
/// Title of the row and the column for all remaining labels.
const REMAINING_LABELS: &str = "other";

/// Parameters of `/agreement`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct AgreementQuery {
    project: Option<String>,
}

/// Agreement on one evaluator, formatted.
pub(super) struct DimensionAgreement {
    pub(super) title: String,
    /// Cohen's kappa with its 95 % interval. None if either side gave one label only, so that kappa is undefined.
    pub(super) kappa: Option<String>,
    pub(super) interval: Option<String>,
    /// Why there is no kappa; empty if there is one.
    pub(super) note: &'static str,
    /// `12 of 15`, the same as a share, and the interval of the share.
    pub(super) agreed: String,
    pub(super) share: String,
    pub(super) share_interval: String,
    pub(super) people: String,
    /// The confusion matrix: labels of the judge in rows, those of people in columns, both in this order.
    pub(super) labels: Vec<String>,
    pub(super) table: Vec<(String, Vec<String>)>,
    /// Kappa and its interval as numbers, for the chart.
    value: Option<f64>,
    bounds: Option<gradus_stats::interval::ConfidenceInterval>,
}

/// A row of the list of disagreements. All texts are ready to be displayed.
struct LabelDisagreement {
    href: String,
    what: String,
    judge: String,
    person: String,
    author: String,
    note: Option<String>,
    when: String,
}

#[derive(Template)]
#[template(path = "agreement.html")]
struct AgreementPage {
    frame: PageLayout,
    projects: Vec<SelectOption>,
    dimensions: Vec<DimensionAgreement>,
    chart: ResponsiveChart,
    disagreements: Vec<LabelDisagreement>,
    count: String,
    is_cut: bool,
    /// Whether a retention policy is set. Labels are deleted with their traces, so people are advised to download them.
    has_retention: bool,
    jsonl: String,
    csv: String,
    review: String,
}

/// `GET /agreement`
pub(super) async fn render_agreement_page(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    PageQuery(choice): PageQuery<AgreementQuery>,
) -> Result<Response, PageError> {
    let project = choice.project.filter(|name| !name.is_empty());
    render::render_page(&server, move |server| build_agreement_page(server, project.as_deref(), &headers)).await
}

/// Builds the page. Without `project`, labels of all projects count.
fn build_agreement_page(
    server: &ServerState,
    project: Option<&str>,
    headers: &HeaderMap,
) -> Result<AgreementPage, ApiError> {
    // One row more than the limit shows whether there are more.
    let mut rows = server.store.labels(project, MAX_LABELS + 1)?;
    let is_cut = rows.len() > MAX_LABELS;
    rows.truncate(MAX_LABELS);
    let settings = server.reloadable();
    let dimensions = compute_dimension_agreement(&settings, &rows);
    let export = PageUrl::from_path("/labels").with("project", project);
    Ok(AgreementPage {
        frame: PageLayout::new("/review", project, headers),
        projects: build_project_options(server.store.project_names()?, project),
        chart: draw_kappa_chart(&dimensions),
        dimensions,
        disagreements: list_disagreements(&settings, &KeyNameSet::load_from_store(&server.store)?, &rows),
        count: format_count(rows.len() as u64),
        is_cut,
        has_retention: settings.retention != RetentionPolicy::default(),
        jsonl: export.with_replaced("format", Some("jsonl")).to_string(),
        csv: export.with_replaced("format", Some("csv")).to_string(),
        review: PageUrl::from_path("/review").with("project", project).to_string(),
    })
}

/// Computes the agreement on each evaluator. Labels without a verdict to compare with are ignored.
pub(super) fn compute_dimension_agreement(settings: &ReloadableSettings, rows: &[LabelRow]) -> Vec<DimensionAgreement> {
    let mut by_evaluator: BTreeMap<&str, Vec<&LabelRow>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.judge_label.is_some() && row.label != UNDECIDED_LABEL) {
        by_evaluator.entry(&row.evaluator).or_default().push(row);
    }
    by_evaluator.into_iter().map(|(name, rows)| DimensionAgreement::from_labels(settings, name, &rows)).collect()
}

impl DimensionAgreement {
    /// `rows` are labels on verdicts of one evaluator. Kappa is computed over labels, its interval over trajectories as
    /// clusters.
    fn from_labels(settings: &ReloadableSettings, evaluator: &str, rows: &[&LabelRow]) -> DimensionAgreement {
        let pairs: Vec<LabelPair<'_>> = rows
            .iter()
            .filter_map(|row| {
                let judge = row.judge_label.as_deref()?;
                Some(LabelPair { judge, person: &row.label, trajectory: row.trajectory })
            })
            .collect();
        let people: BTreeSet<&str> = rows.iter().map(|row| identify_labeler(row)).collect();
        let own = find_answer_labels(settings, evaluator).into_iter().map(|(label, _)| label).collect();
        DimensionAgreement::from_pairs(find_evaluator_title(settings, evaluator), own, &pairs, people.len())
    }

    /// `labels` are those of the rubric, in the order of the confusion matrix.
    pub(super) fn from_pairs(
        title: String,
        labels: Vec<String>,
        pairs: &[LabelPair<'_>],
        people: usize,
    ) -> DimensionAgreement {
        let known = compute_agreement(pairs);
        let (labels, table) = build_confusion_matrix(labels, pairs);
        DimensionAgreement {
            title,
            kappa: known.kappa.map(number::format_score),
            interval: known.interval.map(number::format_score_interval),
            note: match known.one_sided {
                Some(ConstantRater::Judge) => {
                    "the judge gave only one label to the labelled verdicts; label verdicts with other labels too"
                }
                Some(ConstantRater::People) => "people have used only one label",
                Some(ConstantRater::Both) => "only one label has been used",
                None => "",
            },
            agreed: format!("{} of {}", format_count(known.agreed), format_count(known.count)),
            share: known.share.map(number::format_percent).unwrap_or_default(),
            share_interval: known.share_interval.map(number::format_percent_interval).unwrap_or_default(),
            people: number::format_counted_noun(people as u64, "person", "people"),
            labels,
            table,
            value: known.kappa,
            bounds: known.interval,
        }
    }
}

/// Returns the identifier of a person: the key's name where there are keys. The displayed author is chosen freely and
/// may be anybody's name.
pub(super) fn identify_labeler(row: &LabelRow) -> &str {
    if row.identifier.is_empty() { &row.author } else { &row.identifier }
}

/// Counts pairs of labels. Rows and columns are the labels of the rubric, then the most frequent other labels in
/// alphabetical order, then one for the rest.
pub(super) fn build_confusion_matrix(
    mut order: Vec<String>,
    pairs: &[LabelPair<'_>],
) -> (Vec<String>, Vec<(String, Vec<String>)>) {
    let mut cells: HashMap<(&str, &str), u64> = HashMap::new();
    let mut unknown: BTreeMap<&str, u64> = BTreeMap::new();
    for pair in pairs {
        *cells.entry((pair.judge, pair.person)).or_default() += 1;
        for label in [pair.judge, pair.person] {
            *unknown.entry(label).or_default() += 1;
        }
    }
    for label in &order {
        unknown.remove(label.as_str());
    }
    let mut unknown: Vec<(&str, u64)> = unknown.into_iter().collect();
    // The most frequent ones are kept, then put into alphabetical order for reading.
    unknown.sort_by_key(|(_, uses)| std::cmp::Reverse(*uses));
    let has_rest = unknown.len() > MAX_UNKNOWN_LABELS;
    unknown.truncate(MAX_UNKNOWN_LABELS);
    unknown.sort_unstable();
    order.extend(unknown.into_iter().map(|(label, _)| label.to_owned()));
    let rows = order.len() + usize::from(has_rest);
    // Bounded: a rubric has few labels, and at most `MAX_UNKNOWN_LABELS + 1` others are added.
    let mut sums = vec![vec![0_u64; rows]; rows];
    let places: HashMap<&str, usize> = order.iter().enumerate().map(|(at, label)| (label.as_str(), at)).collect();
    for ((judge, person), count) in cells {
        let [down, across] = [judge, person].map(|label| places.get(label).copied().unwrap_or(order.len()));
        sums[down][across] += count;
    }
    let mut shown: Vec<String> = order.iter().map(|label| text::format_display_line(label)).collect();
    shown.extend(has_rest.then(|| REMAINING_LABELS.to_owned()));
    let line = |(label, sums): (&String, Vec<u64>)| (label.clone(), sums.into_iter().map(format_count).collect());
    let table = shown.iter().zip(sums).map(line).collect();
    (shown, table)
}

/// Draws kappa by evaluator. It ranges from -1 to 1; 0 is the agreement expected by chance.
fn draw_kappa_chart(dimensions: &[DimensionAgreement]) -> ResponsiveChart {
    let bars: Vec<IntervalBar> = dimensions
        .iter()
        .map(|one| IntervalBar {
            label: one.title.clone(),
            value: one.value,
            interval: one.bounds,
            bars: Vec::new(),
            note: one.kappa.clone().unwrap_or_else(|| "none yet".to_owned()),
        })
        .collect();
    draw_interval_bars(
        &bars,
        AxisRange { low: -1.0, high: 1.0, format: |kappa| format!("{kappa}") },
        "kappa (0 is chance agreement)",
        "Kappa with its 95 % interval. The table has the same numbers.",
    )
}

/// Lists the disagreements. The store returns rows latest first, and they stay in that order.
fn list_disagreements(
    settings: &ReloadableSettings,
    speakers: &KeyNameSet,
    rows: &[LabelRow],
) -> Vec<LabelDisagreement> {
    let differs = |row: &&LabelRow| {
        row.label != UNDECIDED_LABEL && row.judge_label.as_ref().is_some_and(|judge| *judge != row.label)
    };
    let shown = |row: &LabelRow| LabelDisagreement {
        href: loaded_trace::format_step_url(&format!("{:032x}", row.trace_id), Some(&row.trajectory_id), row.step),
        what: format_verdict_subject(settings, &row.evaluator, row.step),
        judge: text::format_display_line(row.judge_label.as_deref().unwrap_or_default()),
        person: text::format_display_line(&row.label),
        author: speakers.format_author(&row.author, &row.identifier, &row.metadata),
        note: row.note.as_deref().map(text::format_display_line),
        when: format_timestamp(row.updated_ns),
    };
    rows.iter().filter(differs).take(MAX_LISTED_DISAGREEMENTS).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_anybody_may_send_do_not_make_the_table_grow() {
        let own = || vec!["good".to_owned(), "bad".to_owned()];
        let names: Vec<String> = (0..20_000).map(|at| format!("label {at}")).collect();
        let mut pairs: Vec<LabelPair<'_>> =
            names.iter().map(|name| LabelPair { judge: "bad", person: name, trajectory: 1 }).collect();
        pairs.extend([LabelPair { judge: "bad", person: "worse", trajectory: 2 }; 3]);
        pairs.push(LabelPair { judge: "good", person: "good", trajectory: 3 });
        let (labels, table) = build_confusion_matrix(own(), &pairs);
        assert_eq!(labels.len(), 2 + MAX_UNKNOWN_LABELS + 1);
        assert!(labels[..2] == own() && labels.contains(&"worse".to_owned()) && labels[10] == REMAINING_LABELS);
        assert_eq!(
            table[0],
            ("good".to_owned(), {
                let mut row = vec!["0".to_owned(); 11];
                row[0] = "1".to_owned();
                row
            })
        );
        let worse = labels.iter().position(|label| label == "worse").unwrap();
        assert_eq!((table[1].1[worse].as_str(), table[1].1[10].as_str()), ("3", "19,993"));
        let (labels, table) = super::build_confusion_matrix(own(), &pairs[20_000..]);
        assert_eq!((labels.len(), table.len()), (3, 3));
    }
}
