//! `gradus eval --dry-run`: the number of questions per evaluator and their estimated cost. It asks no model and writes
//! nothing.

use std::io::Write;

use gradus_eval::run::VerdictCache;
use gradus_eval::runner::{CostEstimator, JudgePanel};

use super::super::CommandExit;
use super::super::sources::print_diagnostic;
use super::arguments::EvalArguments;
use super::sampled_source::SampledSource;
use super::settings::EvalSettings;
use gradus_report::format_counted_noun;

/// Reads all sources and plans all questions, with the cache, as a run would. Warns if the estimate exceeds
/// `--max-cost`.
pub(super) fn run_dry_run(arguments: &EvalArguments, settings: &EvalSettings) -> anyhow::Result<CommandExit> {
    // Opening creates the cache, which a dry run must not do: a missing cache counts as empty.
    let path = gradus_eval::run::StateFolder::from_path(&settings.state_dir).cache_path();
    let cache = (path.is_file() && !arguments.grading.fresh).then(|| VerdictCache::open(&path)).transpose()?;
    let mut estimator =
        CostEstimator::new(settings.evaluators.clone(), settings.judge.clone(), settings.tool_texts(), cache);
    let source = SampledSource { sources: settings.sources.clone(), sample: arguments.sample, seed: arguments.seed };
    let mut found = 0;
    let read = source.read(&mut |trajectory| {
        found += 1;
        estimator.add(trajectory).map_err(std::io::Error::other)
    })?;
    if found == 0 {
        return Ok(read.command_exit(0));
    }
    let mut out = anstream::stdout().lock();
    let total = print_cost_estimate(&estimator, settings, found, &mut out)?;
    if let (Some(most), Some(total)) = (arguments.grading.max_cost, total)
        && total > most
    {
        print_diagnostic(&format!("that is more than --max-cost {most}: the run would stop early"));
    }
    Ok(read.command_exit(found))
}

/// Prints the table and returns the total in dollars; `None` if the price of the model is unknown. Questions that the
/// cache answers cost nothing, and neither do evaluators that are rules.
fn print_cost_estimate(
    estimator: &CostEstimator,
    settings: &EvalSettings,
    found: usize,
    out: &mut dyn Write,
) -> std::io::Result<Option<f64>> {
    let trajectories = format_counted_noun(found as u64, "trajectory", "trajectories");
    writeln!(out, "{trajectories}, judge {}", settings.judge_name())?;
    if let Some(panel) = settings.judge.as_ref().filter(|panel| !panel.is_single()) {
        writeln!(out, "{} for each question", describe_votes(panel))?;
    }
    writeln!(out)?;
    writeln!(
        out,
        "{:<24}{:>11}{:>9}{:>9}{:>13}{:>11}",
        "evaluation", "questions", "cached", "to ask", "tokens in", "about $"
    )?;
    let mut total = Some(0.0);
    let mut escalation = Some(0.0);
    for (evaluator, estimate) in settings.evaluators.iter().zip(estimator.estimates()) {
        total = total.zip(estimate.cost_usd).map(|(sum, more)| sum + more);
        escalation = escalation.zip(estimate.escalation_usd).map(|(sum, more)| sum + more);
        let shown = estimate.cost_usd.map_or_else(|| "unknown".to_owned(), |cost| format!("{cost:.4}"));
        writeln!(
            out,
            "{:<24}{:>11}{:>9}{:>9}{:>13}{:>11}",
            evaluator.name, estimate.questions, estimate.cached, estimate.to_ask, estimate.prompt_tokens, shown
        )?;
    }
    writeln!(out)?;
    match (&settings.judge, total) {
        (None, _) => writeln!(out, "Nothing to pay: no model is asked.")?,
        (Some(_), Some(total)) => writeln!(
            out,
            "About ${total:.4}, with tokens counted by length and answers of {} tokens; prompt caching can make it less.",
            gradus_eval::runner::TYPICAL_ANSWER_TOKENS
        )?,
        (Some(panel), None) => {
            for judge in panel.judges().filter(|judge| judge.price.is_none()) {
                let model = &judge.client.endpoint().model;
                writeln!(out, "The price of {model:?} is not known: give it with --prices FILE.")?;
            }
        }
    }
    if let Some(policy) = settings.judge.as_ref().and_then(JudgePanel::escalation) {
        let judge = policy.judge.name();
        match escalation {
            Some(more) => writeln!(out, "Up to ${more:.4} more if {judge} has to decide every question.")?,
            None => writeln!(out, "More for every question that {judge} has to decide.")?,
        }
    }
    Ok(total)
}

/// Formats the number of votes: `3 judges x 2 repeats = 6 votes`.
fn describe_votes(panel: &JudgePanel) -> String {
    let (judges, repeats) = (panel.members().len() as u64, u64::from(panel.max_repeats()));
    format!(
        "{} x {} = {}",
        format_counted_noun(judges, "judge", "judges"),
        format_counted_noun(repeats, "repeat", "repeats"),
        format_counted_noun(judges * repeats, "vote", "votes")
    )
}
