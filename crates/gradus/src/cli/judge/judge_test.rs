//! `gradus judge test`: how good a judge is at a question, on runs with known truth. The benchmark or the user brings
//! right runs, `gradus-judge-test` plants flaws into them, the ordinary runner asks, and the verdicts are measured.

mod arguments;
mod bench_material;
mod report_text;
mod test_pass;
mod test_settings;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::Context as _;
use gradus_eval::run::{StateFolder, VerdictCache};
use gradus_eval::runner::RunTermination;
use gradus_judge_test::case_file::write_case_line;
use gradus_judge_test::case_plan::{AcceptAllFlaws, CasePlan, CasePlanSettings, plan_cases};
use gradus_judge_test::judge_comparison::compare_judges;
use gradus_judge_test::judge_figures::measure_judge;
use gradus_judge_test::right_run::{RightRun, UnusableRun};
use gradus_judge_test::test_case::ExpectedVerdict;
use gradus_judge_test::test_report::{JudgeRecord, JudgeTestReport, REPORT_SCHEMA};
use gradus_report::{format_counted_noun, json};

use super::super::eval::{describe_stop_reason, endpoint_advice};
use super::super::sources::{SourceOptions, StateLocations};
use crate::cli::{CommandExit, print_diagnostic};
pub(super) use arguments::JudgeTestArguments;
use bench_material::BenchMaterial;
use test_pass::{PassKind, PassSettings, TestPass, select_pass_evaluators};
use test_settings::{TestSettings, TestedJudge};

/// Entry point of the command.
pub(super) fn run_judge_test_command(arguments: &JudgeTestArguments) -> anyhow::Result<CommandExit> {
    let settings = match TestSettings::read(arguments) {
        Ok(settings) => settings,
        Err(error) => {
            print_diagnostic(&error.to_string());
            return Ok(CommandExit::BadInput);
        }
    };
    let mut bench = if arguments.no_bench { None } else { Some(BenchMaterial::load()?) };
    let own = match read_own_runs(arguments)? {
        Ok(own) => own,
        Err(exit) => return Ok(exit),
    };
    let mut runs = match &bench {
        Some(bench) => bench.play_right_runs(arguments.seed)?,
        None => Vec::new(),
    };
    runs.extend(own);
    let plan_settings = CasePlanSettings { cases: arguments.cases, seed: arguments.seed };
    let plan = match &mut bench {
        Some(bench) => plan_cases(&runs, &settings.tested, plan_settings, bench),
        None => plan_cases(&runs, &settings.tested, plan_settings, &mut AcceptAllFlaws),
    };
    for (name, count) in &plan.shortages {
        let cases = format_counted_noun(*count as u64, "case", "cases");
        print_diagnostic(&format!("{name}: only {cases} of {} can be made from these runs", arguments.cases));
    }
    if plan.cases.is_empty() {
        print_diagnostic("no cases: none of the runs offers a place for a flaw that these rubrics must notice");
        return Ok(CommandExit::NothingFound);
    }
    if let Some(path) = &arguments.write_cases {
        write_output(path, &|out| write_cases(&settings, &plan, out))?;
    }
    if arguments.dry_run {
        return print_dry_run(arguments, &settings, &plan);
    }
    test_judges(arguments, &settings, &plan)
}

/// Reads the runs that the user specified as right. `Err` is the exit code if there is none, which is reported.
fn read_own_runs(arguments: &JudgeTestArguments) -> anyhow::Result<Result<Vec<RightRun>, CommandExit>> {
    if arguments.right.is_empty() {
        return Ok(Ok(Vec::new()));
    }
    let places = StateLocations {
        config: arguments.config.as_deref(),
        state_dir: arguments.state_dir.as_deref(),
        fresh: arguments.fresh,
        ..StateLocations::default()
    };
    let sources = match SourceOptions::default().resolve(&arguments.right, places) {
        Ok(sources) => sources,
        Err(error) => {
            print_diagnostic(&error.to_string());
            return Ok(Err(CommandExit::BadInput));
        }
    };
    let mut runs: Vec<RightRun> = Vec::new();
    let (mut found, mut unusable): (usize, BTreeMap<UnusableRun, usize>) = (0, BTreeMap::new());
    let read = sources.read(&mut |_, trajectory| {
        found += 1;
        match RightRun::from_recording(trajectory) {
            Ok(run) => {
                // Agents that write no thoughts are judged by another rubric, for which the same run serves.
                if run.has_thoughts() {
                    runs.push(run.without_thoughts());
                }
                runs.push(run);
            }
            Err(reason) => *unusable.entry(reason).or_default() += 1,
        }
        Ok(())
    })?;
    if read.failed > 0 || found == 0 {
        return Ok(Err(read.command_exit(found)));
    }
    let reasons: Vec<String> =
        unusable.iter().map(|(reason, count)| format!("{count} with {}", reason.reason())).collect();
    if runs.is_empty() {
        print_diagnostic(&format!(
            "--right: none of {} can be used: {}\nhint: a right run has a request, at least one tool call and a final answer",
            format_counted_noun(found as u64, "trajectory", "trajectories"),
            reasons.join(", ")
        ));
        return Ok(Err(CommandExit::NothingFound));
    }
    if !reasons.is_empty() {
        print_diagnostic(&format!("--right: left out: {}", reasons.join(", ")));
    }
    Ok(Ok(runs))
}

/// Lists all passes over the cases: repetitions, then probes.
fn list_passes(
    arguments: &JudgeTestArguments,
    settings: &TestSettings,
    judge: &TestedJudge,
    plan: &CasePlan,
) -> Vec<TestPass> {
    let repeats = (0..arguments.repeats).map(PassKind::Repeat);
    let probes = settings.probes.iter().copied().map(PassKind::Probe);
    let passes = repeats.chain(probes).filter_map(|kind| {
        let evaluators = select_pass_evaluators(kind, judge, &settings.rubrics)?;
        Some(TestPass::new(kind, &plan.cases, evaluators, arguments.seed))
    });
    passes.filter(|pass| pass.question_count() > 0).collect()
}

fn print_dry_run(
    arguments: &JudgeTestArguments,
    settings: &TestSettings,
    plan: &CasePlan,
) -> anyhow::Result<CommandExit> {
    let is_stdout_taken = arguments.write_cases.as_deref().is_some_and(|path| path.as_os_str() == "-");
    let path = StateFolder::from_path(&settings.state_dir).cache_path();
    let mut text = report_text::describe_cases(plan, arguments.seed) + "\n";
    for judge in &settings.judges {
        let mut rows = Vec::new();
        for pass in list_passes(arguments, settings, judge, plan) {
            // Opening creates the cache, which a dry run must not do: a missing cache counts as empty.
            let cache = (path.is_file() && !arguments.fresh).then(|| VerdictCache::open(&path)).transpose()?;
            let estimator = pass.estimate(judge, cache)?;
            for (evaluator, estimate) in pass.evaluators.iter().zip(estimator.estimates()) {
                rows.push((pass.kind, evaluator.clone(), *estimate));
            }
        }
        text += &report_text::describe_estimate(judge, &rows, arguments.max_cost);
    }
    if is_stdout_taken {
        anstream::eprint!("{text}");
    } else {
        write!(anstream::stdout().lock(), "{text}")?;
    }
    Ok(CommandExit::Pass)
}

/// Asks all judges, and writes the report of their answers, even of a part.
fn test_judges(
    arguments: &JudgeTestArguments,
    settings: &TestSettings,
    plan: &CasePlan,
) -> anyhow::Result<CommandExit> {
    let state = StateFolder::open(&settings.state_dir)?;
    let passes = StateFolder::open(&settings.state_dir.join("judge-test"))?;
    let mut records = Vec::new();
    let mut exit = CommandExit::Pass;
    let mut spent_usd = 0.0;
    for judge in &settings.judges {
        let mut record = JudgeRecord {
            judge: judge.name.clone(),
            endpoint: judge.judge.as_ref().map(|judge| judge.client.shown_url().to_owned()),
            rubric_hashes: judge.evaluators.iter().map(|one| (one.name.to_string(), one.hash.to_string())).collect(),
            ..JudgeRecord::default()
        };
        let mut failure = None;
        for pass in list_passes(arguments, settings, judge, plan) {
            let pass_settings = PassSettings {
                state: &state,
                passes: &passes,
                max_calls: arguments.max_calls,
                max_cost_usd: arguments.max_cost.map(|most| (most - spent_usd).max(0.0)),
                is_fresh: arguments.fresh,
                is_quiet: arguments.quiet,
            };
            let finished = pass.run(judge, &pass_settings)?;
            spent_usd += finished.verdicts.iter().filter_map(|verdict| verdict.cost_usd).sum::<f64>();
            record.verdicts.extend(finished.verdicts);
            record.answer_times.extend(finished.answer_times);
            failure = failure.or(finished.failure);
            if finished.end != RunTermination::Finished {
                record.stopped_because = describe_stop_reason(&finished.end);
                exit = explain_stop(&finished.end, judge);
                break;
            }
        }
        record.calls = judge.judge.as_ref().map_or(0, |judge| judge.client.call_count());
        let is_silent = record.verdicts.iter().all(|verdict| verdict.label.is_none());
        if is_silent && exit == CommandExit::Pass {
            let reason = failure.unwrap_or_default();
            print_diagnostic(&format!("{}: the judge answered none of the questions: {reason}", judge.name));
            exit = CommandExit::Unexpected;
        }
        records.push(record);
        if exit != CommandExit::Pass {
            break;
        }
    }
    let has_verdicts = records.iter().any(|record| record.verdicts.iter().any(|verdict| verdict.label.is_some()));
    if !has_verdicts {
        return Ok(exit);
    }
    let report = build_report(arguments, plan, &records)?;
    write_report(arguments, &report)?;
    let is_fit = |fitness: gradus_judge_test::fitness::GatingFitness| fitness.is_fit();
    let all_fit = report.judges.iter().flat_map(|judge| &judge.rubrics).all(|rubric| is_fit(rubric.fitness));
    if exit == CommandExit::Pass && arguments.require_fit && !all_fit {
        exit = CommandExit::GateFailed;
    }
    Ok(exit)
}

/// Prints why a judge was not asked everything, and returns the exit code.
fn explain_stop(end: &RunTermination, judge: &TestedJudge) -> CommandExit {
    let kept = "what was judged is kept; the same command goes on from there";
    let (text, exit) = match end {
        RunTermination::Finished => return CommandExit::Pass,
        RunTermination::Limit(reason) => (format!("stopped: {reason}; {kept}"), CommandExit::Pass),
        RunTermination::Interrupted => (format!("interrupted; {kept}"), CommandExit::Interrupted),
        RunTermination::EndpointDied(reason) => {
            (format!("the judge stopped answering ({reason}); {kept}"), CommandExit::Unexpected)
        }
        RunTermination::Endpoint { failure, .. } => {
            let exit = if failure.error.is_fatal() { CommandExit::BadInput } else { CommandExit::Unexpected };
            (format!("{}; {kept}", endpoint_advice(failure, judge.judge.as_deref())), exit)
        }
    };
    print_diagnostic(&text);
    exit
}

fn build_report(
    arguments: &JudgeTestArguments,
    plan: &CasePlan,
    records: &[JudgeRecord],
) -> anyhow::Result<JudgeTestReport> {
    let clusters: std::collections::BTreeSet<&str> = plan.cases.iter().map(|case| case.cluster.as_str()).collect();
    let comparison = if records.len() > 1 { Some(compare_judges(&plan.cases, records)?) } else { None };
    Ok(JudgeTestReport {
        schema: REPORT_SCHEMA,
        gradus_version: env!("CARGO_PKG_VERSION").to_owned(),
        seed: arguments.seed,
        repeats: arguments.repeats,
        cases: plan.cases.len() as u64,
        flawed_cases: plan.cases.iter().filter(|case| case.expected == ExpectedVerdict::Flawed).count() as u64,
        clusters: clusters.len() as u64,
        harmless: plan.harmless.clone(),
        shortages: plan.shortages.clone(),
        judges: records.iter().map(|record| measure_judge(&plan.cases, record)).collect(),
        comparison,
    })
}

fn write_report(arguments: &JudgeTestArguments, report: &JudgeTestReport) -> anyhow::Result<()> {
    let outputs = [&arguments.json, &arguments.markdown, &arguments.write_cases];
    let is_stdout_taken = outputs.into_iter().flatten().any(|path| path.as_os_str() == "-");
    if let Some(path) = &arguments.json {
        write_output(path, &|out| {
            json::write_pretty(report, out)?;
            writeln!(out)
        })?;
    }
    if let Some(path) = &arguments.markdown {
        write_output(path, &|out| report_text::write_markdown(report, out))?;
    }
    if !is_stdout_taken {
        let mut out = BufWriter::new(anstream::stdout().lock());
        report_text::print_report(report, &mut out)?;
        out.flush()?;
    }
    Ok(())
}

fn write_cases(settings: &TestSettings, plan: &CasePlan, out: &mut dyn Write) -> io::Result<()> {
    for case in &plan.cases {
        let evaluators = &settings.judges[0].evaluators;
        let evaluator = evaluators.iter().find(|one| *one.name == *case.evaluator);
        let labels = evaluator.map_or(("", ""), |one| (one.labels.best(), one.labels.worst()));
        write_case_line(case, labels, out)?;
    }
    Ok(())
}

/// Writes to a file, or to standard output for `-`.
fn write_output(path: &Path, render: &dyn Fn(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    if path.as_os_str() == "-" {
        let mut out = BufWriter::new(io::stdout().lock());
        render(&mut out)?;
        return Ok(out.flush()?);
    }
    let write = || {
        let mut out = BufWriter::new(File::create(path)?);
        render(&mut out)?;
        out.flush()
    };
    write().with_context(|| path.display().to_string())
}
