//! Comparison of two runs: differences of scores with their significance, and the verdicts that changed.

use std::collections::HashMap;
use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use gradus_eval::comparison::{ScoreDifference, correct_p_values, paired_difference, unpaired_difference};
use gradus_eval::interval::ScoreCluster;
use gradus_eval::report::RunReader;
use gradus_eval::run::RunFolder;
use gradus_eval::scale::ScoreScale;
use gradus_report::TrialMeasurement;
use gradus_report::html::number::{self, format_count};
use gradus_report::html::text;
use serde::Deserialize;

use super::PageLayout;
use super::address::PageUrl;
use super::flips::{self, PagedVerdictChanges, VerdictChange, VerdictChangeValues};
use super::pagination::PaginationLinks;
use super::pairing::{ComparedRun, LabelInterner, PairedUnit, TrajectoryPairing};
use super::render::{self, PageError, PageQuery};
use super::run_addresses::{run_address, run_trajectory_address};
use crate::evaluators::find_evaluator_title;
use crate::http_error::ApiError;
use crate::run_lookup::log_run_failure;
use crate::settings::ReloadableSettings;
use crate::state::ServerState;

/// Parameters of `/compare`: the ids of the runs, A (before) and B (after).
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct RunComparisonQuery {
    a: String,
    b: String,
    /// Offsets of the two lists of changes, which are paged independently.
    worse: u64,
    better: u64,
    /// Runs belong to no project. It is passed on to the links of the navigation.
    project: Option<String>,
}

#[derive(Template)]
#[template(path = "compare.html")]
struct RunComparisonPage {
    frame: PageLayout,
    a: ComparedRunView,
    b: ComparedRunView,
    /// How trajectories were paired, as a sentence.
    how: String,
    rows: Vec<MetricComparisonRow>,
    /// Worse, then better. None if nothing is paired: without pairs no verdict can have changed.
    flips: Option<[VerdictFlipList; 2]>,
    /// A run is larger than what is compared.
    is_cut: bool,
}

/// One of the runs. `compared` is the number of trajectories that the comparison uses.
struct ComparedRunView {
    id: String,
    href: String,
    judge: String,
    trajectories: String,
    compared: String,
}

/// One evaluator. Shares are in percent and their differences in percentage points.
struct MetricComparisonRow {
    title: String,
    before: String,
    after: String,
    change: Option<String>,
    /// 95 % confidence interval of the difference.
    interval: Option<String>,
    /// `pass` or `fail` for a significant difference; otherwise empty.
    class: &'static str,
    word: String,
    count: String,
    /// Questions without a verdict, in A and in B.
    failed: (String, String),
}

/// The changes in one direction.
struct VerdictFlipList {
    id: &'static str,
    title: &'static str,
    count: String,
    /// None if all changes are on this page.
    window: Option<PaginationLinks>,
    all: Vec<VerdictFlipRow>,
}

/// A verdict that changed.
struct VerdictFlipRow {
    /// The trajectory with the verdicts of run B.
    href: String,
    what: String,
    query: String,
    before: String,
    after: String,
    /// The trajectory with the verdicts of run A.
    before_href: String,
}

/// `GET /compare`
pub(super) async fn render_comparison_page(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    PageQuery(choice): PageQuery<RunComparisonQuery>,
) -> Result<Response, PageError> {
    let project = choice.project.as_deref().filter(|name| !name.is_empty());
    let frame = PageLayout::new("/runs", project, &headers);
    render::of_large(&server, move |server| build_comparison_page(server, &choice, frame)).await
}

/// Reads both runs from their files and holds them in memory, within the bounds of `pairing`. 400 without two ids.
fn build_comparison_page(
    server: &ServerState,
    choice: &RunComparisonQuery,
    frame: PageLayout,
) -> Result<RunComparisonPage, ApiError> {
    if choice.a.is_empty() || choice.b.is_empty() {
        return Err(ApiError::bad_request("Choose two runs to compare, A and B."));
    }
    let open = |id: &str| {
        let run = crate::run_lookup::find_run(server, id)?;
        Ok::<_, ApiError>((RunReader::open(&run).map_err(log_run_failure)?, load_trial_measurements(server, &run)))
    };
    let ((mut first, first_trials), (mut second, second_trials)) = (open(&choice.a)?, open(&choice.b)?);
    // Shared by both runs, so that equal labels have equal numbers.
    let mut words = LabelInterner::default();
    let before = ComparedRun::read(&mut first, &first_trials, &mut words).map_err(log_run_failure)?;
    let after = ComparedRun::read(&mut second, &second_trials, &mut words).map_err(log_run_failure)?;
    // Reading a run stops early when the query is cancelled; this turns that into the error.
    gradus_store::check_query().map_err(gradus_store::StoreError::from)?;
    let pairing = TrajectoryPairing::from_runs(&before.judged, &after.judged);
    let settings = server.reloadable();
    let compared = RunComparison {
        scales: collect_evaluator_scales([&first, &second]),
        titles: collect_evaluator_titles([&first, &second], first_trials.iter().chain(&second_trials)),
        runs: [&first, &second].map(|run| run.record.run_id.clone()),
        project: choice.project.as_deref().filter(|name| !name.is_empty()),
        settings: &settings,
        words: &words,
        before: &before,
        after: &after,
        pairing: &pairing,
    };
    let side = |reader: &RunReader, run: &ComparedRun, compared: usize| ComparedRunView {
        id: text::format_display_line(&reader.record.run_id),
        href: run_address(&reader.record.run_id, choice.project.as_deref()),
        judge: text::format_display_line(&reader.record.judge),
        trajectories: format_count(run.judged.len() as u64),
        // Without pairs all trajectories are compared by their means.
        compared: format_count(if pairing.units.is_empty() { run.judged.len() } else { compared } as u64),
    };
    let flips = match pairing.units.is_empty() {
        true => None,
        false => {
            let skipped = (choice.worse, choice.better);
            let (worse, better) = flips::find_verdict_flips(&before.judged, &after.judged, &pairing, skipped);
            Some([
                compared.build_flip_list(choice, ("worse", "Worse in B than in A"), &worse),
                compared.build_flip_list(choice, ("better", "Better in B than in A"), &better),
            ])
        }
    };
    Ok(RunComparisonPage {
        frame,
        a: side(&first, &before, pairing.covered.0),
        b: side(&second, &after, pairing.covered.1),
        how: describe_pairing(&pairing, (before.judged.len(), after.judged.len())),
        rows: compared.build_metric_rows(),
        flips,
        is_cut: before.is_cut || after.is_cut,
    })
}

/// How trajectories were paired, as a sentence. `all` are the numbers of trajectories of the runs.
fn describe_pairing(pairing: &TrajectoryPairing, all: (usize, usize)) -> String {
    let is_same = |unit: &PairedUnit| matches!(unit, PairedUnit::Same(..));
    let (same, units) = (pairing.units.iter().filter(|unit| is_same(unit)).count(), pairing.units.len());
    let covered = pairing.covered;
    let pairs = number::format_counted_noun(units as u64, "pair", "pairs");
    let how = match (units, same) {
        (0, _) if pairing.is_too_few => {
            "Not paired: the runs share too few trajectories and requests. The means of all trajectories are compared."
        }
        (0, _) => "Not paired: the runs share no trajectory or request. The means of all trajectories are compared.",
        (_, 0) => "Paired by task: trajectories with the same request are compared; several trials are averaged.",
        _ if same == units && covered == all => "Paired: both runs judged the same trajectories.",
        _ if same == units => "Paired: only the trajectories that both runs judged are compared.",
        _ => "Paired: identical trajectories, and others by task where the request is the same.",
    };
    let left = (all.0.saturating_sub(covered.0), all.1.saturating_sub(covered.1));
    match (units, left) {
        (0, _) => how.to_owned(),
        (_, (0, 0)) => format!("{how} {pairs}."),
        (_, (a, b)) => {
            format!("{how} {pairs}; {} of A and {} of B are excluded.", format_count(a as u64), format_count(b as u64))
        }
    }
}

/// The trials of a benchmark run; empty for other runs. An unreadable benchmark is logged, and the verdicts are
/// compared without it.
fn load_trial_measurements(server: &ServerState, run: &RunFolder) -> Vec<TrialMeasurement> {
    match (server.settings.supplements)(run.path()) {
        Ok(supplement) => supplement.map(|supplement| supplement.measurements()).unwrap_or_default(),
        Err(error) => {
            tracing::error!(error, "failed to read the benchmark results of a run; comparing without them");
            Vec::new()
        }
    }
}

/// Titles from the manifests of the runs: the server may not have these evaluators.
fn collect_evaluator_titles<'t>(
    runs: [&RunReader; 2],
    trials: impl Iterator<Item = &'t TrialMeasurement>,
) -> HashMap<String, String> {
    let known = runs.iter().flat_map(|run| &run.record.evaluators).filter(|known| !known.title.is_empty());
    let measured = trials.flat_map(|trial| &trial.results).map(|one| (one.name.to_owned(), one.title.to_owned()));
    known.map(|known| (known.name.clone(), text::format_display_line(&known.title))).chain(measured).collect()
}

/// The range of scores of each evaluator: the union of both runs, whose rubrics may differ.
fn collect_evaluator_scales(runs: [&RunReader; 2]) -> HashMap<String, ScoreScale> {
    let mut scales: HashMap<String, ScoreScale> = HashMap::new();
    for known in runs.iter().flat_map(|run| &run.record.evaluators) {
        let own = known.scale();
        scales.entry(known.name.clone()).and_modify(|scale| *scale = scale.with(own)).or_insert(own);
    }
    scales
}

/// None if all changes are shown. The link of one list keeps the offset of the other.
fn build_flip_pagination(
    choice: &RunComparisonQuery,
    id: &str,
    changes: &PagedVerdictChanges,
) -> Option<PaginationLinks> {
    let (skipped, shown) = (changes.skipped, changes.shown.len() as u64);
    if shown == changes.count {
        return None;
    }
    let skips = [("worse", choice.worse), ("better", choice.better)];
    let link = |skip: u64| {
        let mut address = PageUrl::from_path("/compare").with("a", Some(&choice.a)).with("b", Some(&choice.b));
        for (name, own) in skips {
            let own = if name == id { skip } else { own };
            address = address.with(name, Some(own.to_string()).filter(|_| own > 0).as_deref());
        }
        address.with("project", choice.project.as_deref()).with_fragment(format!("h-{id}")).to_string()
    };
    let page = flips::MAX_FLIPS_PER_PAGE as u64;
    let end = skipped.saturating_add(shown);
    Some(PaginationLinks {
        text: match shown {
            0 => format!("None after the first {}", format_count(skipped.min(changes.count))),
            _ => format!("{} to {} of {}", format_count(skipped + 1), format_count(end), format_count(changes.count)),
        },
        earlier: (skipped > 0).then(|| link(skipped.min(changes.count).saturating_sub(page))),
        later: (shown > 0 && end < changes.count).then(|| link(end)),
    })
}

/// Both runs with everything that is needed to show them.
struct RunComparison<'c> {
    settings: &'c ReloadableSettings,
    words: &'c LabelInterner,
    before: &'c ComparedRun,
    after: &'c ComparedRun,
    pairing: &'c TrajectoryPairing,
    scales: HashMap<String, ScoreScale>,
    titles: HashMap<String, String>,
    /// Ids of A and B.
    runs: [String; 2],
    project: Option<&'c str>,
}

impl RunComparison<'_> {
    /// URL of a trajectory with the verdicts of run `run`: 0 for A, 1 for B.
    fn trajectory_url(&self, run: usize, trajectory: &str, step: Option<u32>) -> String {
        run_trajectory_address(&self.runs[run], trajectory, step, self.project).to_string()
    }

    /// The title in the runs, or else the one of the server.
    fn evaluator_title(&self, name: &str) -> String {
        self.titles.get(name).cloned().unwrap_or_else(|| find_evaluator_title(self.settings, name))
    }

    /// 0 to 1 if neither run knows the evaluator, as for results of trials.
    fn evaluator_scale(&self, name: &str) -> ScoreScale {
        self.scales.get(name).copied().unwrap_or(ScoreScale::SHARE)
    }

    /// One row for each evaluator of either run.
    fn build_metric_rows(&self) -> Vec<MetricComparisonRow> {
        let evaluators: Vec<u32> = self.before.evaluators().union(&self.after.evaluators()).copied().collect();
        let differences: Vec<Option<ScoreDifference>> =
            evaluators.iter().map(|evaluator| self.score_difference(*evaluator)).collect();
        // Multiple comparisons: with twenty evaluators and no real difference, one p-value below 0.05 is expected. The
        // p-values are therefore corrected together.
        let known: Vec<ScoreDifference> = differences.iter().flatten().copied().collect();
        let mut chances = correct_p_values(&known).into_iter();
        let chance = |known: &Option<ScoreDifference>| known.and_then(|_| chances.next());
        let chances: Vec<Option<f64>> = differences.iter().map(chance).collect();
        let all = evaluators.into_iter().zip(differences).zip(chances);
        all.map(|((evaluator, difference), chance)| self.build_metric_row(evaluator, difference, chance)).collect()
    }

    /// A paired test where trajectories are paired, otherwise one of two independent samples. None if a side has no
    /// scores.
    fn score_difference(&self, evaluator: u32) -> Option<ScoreDifference> {
        let ScoreScale { worst, best } = self.evaluator_scale(self.words.resolve(evaluator));
        if self.pairing.units.is_empty() {
            unpaired_difference(&self.before.clusters(evaluator), &self.after.clusters(evaluator), worst, best)
        } else {
            paired_difference(&self.pairing.pair_scores(&self.before.judged, &self.after.judged, evaluator))
        }
    }

    /// `chance` is the p-value of the difference after correction for the number of evaluators.
    fn build_metric_row(
        &self,
        evaluator: u32,
        difference: Option<ScoreDifference>,
        chance: Option<f64>,
    ) -> MetricComparisonRow {
        let name = self.words.resolve(evaluator);
        let is_share = self.evaluator_scale(name).is_share();
        let (old, new) = (self.before.clusters(evaluator), self.after.clusters(evaluator));
        let shown =
            |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| number::format_mean(value, is_share));
        let signed = |value: f64| match is_share {
            true => format!("{:+.1}", 100.0 * value),
            false => format!("{value:+.2}"),
        };
        // A no-break space keeps the number and its unit on one line.
        let unit = if is_share { "\u{a0}points" } else { "" };
        let (class, word) = describe_difference(difference.as_ref(), chance);
        let failed =
            |run: &ComparedRun| run.failed.get(&evaluator).map_or_else(|| "0".to_owned(), |one| format_count(*one));
        MetricComparisonRow {
            title: self.evaluator_title(name),
            before: shown(difference.map(|known| known.before).or_else(|| compute_mean_score(&old))),
            after: shown(difference.map(|known| known.after).or_else(|| compute_mean_score(&new))),
            change: difference.map(|known| format!("{}{unit}", signed(known.value))),
            interval: difference
                .map(|known| format!("{}\u{a0}to\u{a0}{}", signed(known.interval.low), signed(known.interval.high))),
            class,
            word,
            count: difference
                .map(|known| {
                    if self.pairing.units.is_empty() {
                        return format!("A: {}, B: {}", format_verdict_count(&old), format_verdict_count(&new));
                    }
                    let of = if self.pairing.units.iter().any(|unit| matches!(unit, PairedUnit::Task(..))) {
                        number::format_counted_noun(known.trajectories, "task", "tasks")
                    } else {
                        number::format_counted_noun(known.trajectories, "trajectory", "trajectories")
                    };
                    format!("{} in {of}", format_count(known.count))
                })
                .unwrap_or_default(),
            failed: (failed(self.before), failed(self.after)),
        }
    }

    /// `id` is the name of the offset parameter and of the section.
    fn build_flip_list(
        &self,
        choice: &RunComparisonQuery,
        (id, title): (&'static str, &'static str),
        changes: &PagedVerdictChanges,
    ) -> VerdictFlipList {
        let all = changes.shown.iter().map(|change| self.build_flip_row(change)).collect();
        VerdictFlipList {
            id,
            title,
            count: format_count(changes.count),
            window: build_flip_pagination(choice, id, changes),
            all,
        }
    }

    /// Links to the trajectory in both runs; the request is that of run B.
    fn build_flip_row(&self, change: &VerdictChange) -> VerdictFlipRow {
        let (old, new) = (&self.before.judged[change.places.0], &self.after.judged[change.places.1]);
        let name = self.words.resolve(change.evaluator);
        let is_share = self.evaluator_scale(name).is_share();
        let (before, after) = match change.what {
            VerdictChangeValues::Labels(was, is) => {
                (text::format_display_line(self.words.resolve(was)), text::format_display_line(self.words.resolve(is)))
            }
            VerdictChangeValues::Means(was, is) => {
                (number::format_mean(was, is_share), number::format_mean(is, is_share))
            }
        };
        VerdictFlipRow {
            href: self.trajectory_url(1, &new.id, change.step),
            before_href: self.trajectory_url(0, &old.id, change.step),
            what: match change.step {
                Some(step) => format!("{}, step {step}", self.evaluator_title(name)),
                None => self.evaluator_title(name),
            },
            query: new.query.to_string(),
            before,
            after,
        }
    }
}

/// Number of verdicts and of the trajectories that they are in.
fn format_verdict_count(clusters: &[ScoreCluster]) -> String {
    let verdicts: f64 = clusters.iter().map(|one| one.count).sum();
    let trajectories = clusters.iter().filter(|one| one.count > 0.0).count() as u64;
    format!(
        "{} in {}",
        format_count(verdicts as u64),
        number::format_counted_noun(trajectories, "trajectory", "trajectories")
    )
}

/// Mean over verdicts, not over trajectories. None without verdicts.
fn compute_mean_score(clusters: &[ScoreCluster]) -> Option<f64> {
    let count: f64 = clusters.iter().map(|one| one.count).sum();
    (count > 0.0).then(|| clusters.iter().map(|one| one.sum).sum::<f64>() / count)
}

/// The class and the words for a difference. `chance` is the p-value after correction. Both the interval and the
/// corrected p-value have to exclude chance before a difference is called better or worse.
fn describe_difference(difference: Option<&ScoreDifference>, chance: Option<f64>) -> (&'static str, String) {
    let Some(known) = difference else { return ("", "nothing to compare".to_owned()) };
    let p = |chance: f64| match chance {
        chance if chance < 0.001 => "p < 0.001".to_owned(),
        chance => format!("p = {chance:.3}"),
    };
    let alone = known.chance.map(|chance| format!(" ({})", p(chance))).unwrap_or_default();
    let is_lopsided = known.chance.is_some_and(|chance| chance < 0.05);
    let is_sure = chance.is_none_or(|chance| chance < 0.05);
    let together = chance.map(|chance| format!(" ({} after correction)", p(chance))).unwrap_or_default();
    match (known.is_significant(), is_sure, known.value > 0.0) {
        (false, ..) if known.value == 0.0 && known.before == known.after && known.chance == Some(1.0) => {
            ("", "no difference".to_owned())
        }
        // The paired test is significant, but the interval of the mean contains 0: many small changes one way, few
        // large ones the other.
        (false, ..) if is_lopsided => ("", format!("inconclusive{alone}")),
        (false, ..) => ("", format!("not significant{alone}")),
        (true, false, _) => ("", format!("not significant{together}")),
        (true, true, true) => ("pass", format!("better{together}")),
        (true, true, false) => ("fail", format!("worse{together}")),
    }
}

#[cfg(test)]
mod tests {
    use gradus_eval::comparison::ScorePair;

    use super::*;

    #[test]
    fn flips_go_on_from_page_to_page() {
        let choice =
            RunComparisonQuery { a: "x".to_owned(), b: "y".to_owned(), better: 50, ..RunComparisonQuery::default() };
        let change =
            VerdictChange { evaluator: 0, step: None, places: (0, 0), what: VerdictChangeValues::Means(0.0, 1.0) };
        let changes =
            |count, skipped, shown| PagedVerdictChanges { count, skipped, shown: vec![change.clone(); shown] };
        assert!(build_flip_pagination(&choice, "worse", &changes(50, 0, 50)).is_none());
        let first = build_flip_pagination(&choice, "worse", &changes(120, 0, 50)).unwrap();
        assert_eq!((first.text.as_str(), first.earlier), ("1 to 50 of 120", None));
        assert_eq!(first.later.as_deref(), Some("/compare?a=x&b=y&worse=50&better=50#h-worse"));
        let last = build_flip_pagination(&choice, "better", &changes(70, 50, 20)).unwrap();
        assert_eq!((last.text.as_str(), last.later), ("51 to 70 of 70", None));
        assert_eq!(last.earlier.as_deref(), Some("/compare?a=x&b=y#h-better"));
        let beyond = build_flip_pagination(&choice, "better", &changes(70, u64::MAX, 0)).unwrap();
        assert_eq!(beyond.earlier.as_deref(), Some("/compare?a=x&b=y&better=20#h-better"));
    }

    #[test]
    fn what_is_significant_alone_may_be_chance_among_many() {
        let pairs: Vec<ScorePair> =
            (0..6).map(|trajectory| ScorePair { trajectory, before: 0.0, after: 1.0 }).collect();
        let known = paired_difference(&pairs).unwrap();
        assert_eq!(
            describe_difference(Some(&known), Some(0.031)),
            ("pass", "better (p = 0.031 after correction)".to_owned())
        );
        let many = describe_difference(Some(&known), Some(0.125));
        assert_eq!(many, ("", "not significant (p = 0.125 after correction)".to_owned()));
        let same = paired_difference(&[ScorePair { trajectory: 0, before: 1.0, after: 1.0 }]).unwrap();
        assert_eq!(describe_difference(Some(&same), Some(1.0)), ("", "no difference".to_owned()));
        assert_eq!(describe_difference(None, None).1, "nothing to compare");
    }
}
