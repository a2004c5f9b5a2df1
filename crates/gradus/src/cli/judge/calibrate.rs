//! `gradus judge calibrate`: draws verdicts of a run, has them labelled, and writes how often the judge is right.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use gradus_core::trajectory::Trajectory;
use gradus_eval::calibration::{
    CalibrationFile, CalibrationFileError, CalibrationInput, CaseLabel, CasePopulation, DrawnCases, JudgeCalibration,
    LabelDraw, LabelDrawError, LabelMergeError, LabelSampling, MergedLabels, ReviewedSample, apply_calibrations,
    build_calibration, merge_labels,
};
use gradus_eval::evaluator_selection::rubric_library;
use gradus_eval::outcome::{OutcomeLine, OutcomeSpans};
use gradus_eval::report::{EvaluationSummary, RunReader};
use gradus_eval::run::{EvaluatorRecord, RunFileError, RunFolder};
use gradus_report::json;

use super::calibration_text::{CalibrationText, print_calibration};
use super::label_session::{LabelAnswer, LabelSession, ShownCase, ask_person, reveal_verdict};
use super::review_sample::{ReviewSampleError, ReviewSampleFile};
use crate::cli::CommandExit;
use crate::cli::label_file::{DrawnFrom, FileLabel, LabelFileError, read_label_file};
use crate::cli::run_lookup::{RunLookupError, find_run, resolve_state_dir};
use crate::cli::sources::print_diagnostic;
use crate::config::{ConfigError, ConfigFile, EnvironmentVariables};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CalibrateArguments {
    /// The run's id, the beginning of it, or its name; without it, the latest run.
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// Whose verdicts to label; needed if the run has several evaluators with verdicts.
    #[arg(long, short, value_name = "NAME")]
    evaluator: Option<String>,
    /// Draw this many cases.
    #[arg(long, value_name = "N", default_value_t = 50)]
    cases: usize,
    /// How to draw: every case alike, as many of each label of the judge, or unsure ones more often [default: uniform;
    /// active where several votes decided].
    #[arg(long, value_enum)]
    sampling: Option<SamplingOption>,
    /// The same seed draws the same cases.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Who labels in the terminal [default: USER].
    #[arg(long, value_name = "NAME")]
    labeller: Option<String>,
    /// Use the labels of a file instead of asking: JSON Lines or CSV of --write-cases, of the review page, of `gradus
    /// bench`, or annotations of Phoenix; may be given several times.
    #[arg(long, value_name = "FILE")]
    labels: Vec<PathBuf>,
    /// Use a random sample that was labelled on the review page of `gradus serve`: the JSON Lines of `/labels`. No run is
    /// needed, since the judge's verdicts are in the file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["run", "labels", "write_cases"])]
    review_sample: Option<PathBuf>,
    /// Write the drawn cases to a file for labelling elsewhere (fill in `label`), and stop.
    #[arg(long, value_name = "FILE", conflicts_with = "labels")]
    write_cases: Option<PathBuf>,
    /// The calibration file; calibrations of other evaluators in it are kept.
    #[arg(long, value_name = "FILE", default_value = "calibration.json")]
    output: PathBuf,
    /// Days until gates refuse the calibration.
    #[arg(long, value_name = "DAYS", default_value_t = 90)]
    expires: u32,
    /// Print the calibration as JSON.
    #[arg(long)]
    json: bool,
    /// A rubric's file or a folder of them, for the text of the question.
    #[arg(long, value_name = "PATH")]
    rubrics: Vec<PathBuf>,
    /// Where runs are kept [default: .gradus].
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Settings; else gradus.toml if it is here.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The values of `--sampling`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SamplingOption {
    Uniform,
    Stratified,
    Active,
}

const EXAMPLES: &str = "\
Examples:
  gradus judge calibrate -e thought_to_tool              label 50 verdicts of the latest run here
  gradus judge calibrate v2 -e task_completion --sampling stratified --cases 80
  gradus judge calibrate -e thought_to_tool --write-cases cases.jsonl    label them elsewhere
  gradus judge calibrate -e thought_to_tool --labels cases.jsonl
  gradus judge calibrate -e thought_to_tool --review-sample labels.jsonl
  gradus eval traces/ --calibration calibration.json --gate 'thought_to_tool >= 0.8'

Labelling can be ended at any time (q) and continued with the same command. Fewer than 20 labelled trajectories correct no
number.

Exit codes: 0 written, 2 bad input, 4 there is nothing to label.";

/// Why no calibration could be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum CalibrateError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Run(#[from] RunLookupError),
    #[error("--evaluator: the run has verdicts of {known}; name one")]
    SeveralEvaluators { known: String },
    #[error("--evaluator {name:?}: the run has no such evaluator; it has {known}")]
    UnknownEvaluator { name: String, known: String },
    #[error(transparent)]
    Draw(#[from] LabelDrawError),
    #[error(transparent)]
    LabelFile(#[from] LabelFileError),
    #[error(transparent)]
    Merge(#[from] LabelMergeError),
    #[error(transparent)]
    File(#[from] CalibrationFileError),
    #[error(transparent)]
    ReviewSample(#[from] ReviewSampleError),
    #[error("{}: it exists, and may hold labels\nhint: give another name, or delete it", path.display())]
    CasesExist { path: PathBuf },
    #[error("no case has a label that counts: people could not decide, or disagree")]
    NothingLabelled,
    #[error(
        "{}: its calibration of {evaluator} has {known} labelled cases, and this one {found}\nhint: write to another file \
         with --output, or delete the old one",
        path.display()
    )]
    FewerCases { path: PathBuf, evaluator: String, known: u64, found: u64 },
    #[error("--cases: give at least 1")]
    NoCases,
    /// An internal error and not a mistake of the user, like all that follow.
    #[error(transparent)]
    RunFile(#[from] RunFileError),
    #[error("{}: {source}", path.display())]
    Output { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Terminal(#[from] io::Error),
}

impl CalibrateError {
    pub(super) fn exit(&self) -> CommandExit {
        match self {
            Self::RunFile(_) | Self::Output { .. } | Self::Terminal(_) => CommandExit::Unexpected,
            Self::NothingLabelled => CommandExit::NothingFound,
            _ => CommandExit::BadInput,
        }
    }
}

/// Entry point of the command.
pub(super) fn run_calibrate_command(arguments: &CalibrateArguments) -> anyhow::Result<CommandExit> {
    let done = match &arguments.review_sample {
        Some(path) => calibrate_review_sample(arguments, path),
        None => PreparedCalibration::new(arguments).and_then(|mut prepared| prepared.run()),
    };
    Ok(done.unwrap_or_else(|error| {
        print_diagnostic(&error.to_string());
        error.exit()
    }))
}

/// Measures the labels of a sample of the review page, and writes.
fn calibrate_review_sample(arguments: &CalibrateArguments, path: &Path) -> Result<CommandExit, CalibrateError> {
    let sample = ReviewSampleFile::read(path, arguments.evaluator.as_deref())?;
    let merged = merge_labels(sample.labels.clone(), &sample.labelled_cases(), &sample.evaluator.labels)?;
    if sample.skipped_count > 0 {
        print_diagnostic(&format!(
            "{} labels of other samples, or beyond a gap in this one, do not count",
            sample.skipped_count
        ));
    }
    let (created, expires) = calibration_times(arguments.expires);
    let calibration = ReviewedSample {
        evaluator: &sample.evaluator,
        population: sample.population.clone(),
        by_label: &sample.by_label,
        cases: &sample.cases,
        labels: &merged,
        created,
        expires,
        gradus_version: env!("CARGO_PKG_VERSION"),
    }
    .build_calibration();
    save_calibration(&arguments.output, &calibration)?;
    let mut out = BufWriter::new(anstream::stdout().lock());
    if arguments.json {
        json::write_pretty(&calibration, &mut out)?;
        writeln!(out)?;
    } else {
        let text = CalibrationText { calibration: &calibration, metric: None, output: &arguments.output };
        print_calibration(&text, &mut out)?;
    }
    out.flush()?;
    Ok(CommandExit::Pass)
}

/// Adds a calibration to the file.
fn save_calibration(output: &Path, calibration: &JudgeCalibration) -> Result<(), CalibrateError> {
    let mut file = match output.exists() {
        true => CalibrationFile::read(output)?,
        false => CalibrationFile::new(Vec::new()),
    };
    let (evaluator, found) = (&calibration.evaluator, calibration.measures.cases);
    if found == 0 {
        return Err(CalibrateError::NothingLabelled);
    }
    let is_same = |known: &&JudgeCalibration| {
        (&known.evaluator, &known.judge.name, &known.rubric_hash)
            == (evaluator, &calibration.judge.name, &calibration.rubric_hash)
    };
    // Labels are work: a few new ones must not replace many.
    if let Some(known) = file.calibrations.iter().find(is_same).map(|known| known.measures.cases)
        && known > found
    {
        let (path, evaluator) = (output.to_owned(), evaluator.clone());
        return Err(CalibrateError::FewerCases { path, evaluator, known, found });
    }
    file.add(calibration.clone());
    file.write(output).map_err(|source| CalibrateError::Output { path: output.to_owned(), source })
}

/// Returns the present time, and when a calibration of now expires.
fn calibration_times(expires_days: u32) -> (jiff::Timestamp, jiff::Timestamp) {
    let created = jiff::Timestamp::now().round(jiff::Unit::Second).unwrap_or_else(|_| jiff::Timestamp::now());
    let lifetime = jiff::SignedDuration::from_hours(24 * i64::from(expires_days));
    (created, created.checked_add(lifetime).unwrap_or(jiff::Timestamp::MAX))
}

/// A run whose verdicts can be labelled.
struct PreparedCalibration<'a> {
    arguments: &'a CalibrateArguments,
    state_dir: PathBuf,
    reader: RunReader,
    evaluator: EvaluatorRecord,
    /// The question in one line.
    question: String,
    population: CasePopulation,
    draw: LabelDraw,
    drawn_from: DrawnFrom,
}

impl<'a> PreparedCalibration<'a> {
    fn new(arguments: &'a CalibrateArguments) -> Result<PreparedCalibration<'a>, CalibrateError> {
        let environment = EnvironmentVariables::read();
        let file = ConfigFile::read(arguments.config.as_deref().or(environment.config.as_deref()))?;
        if arguments.cases == 0 {
            return Err(CalibrateError::NoCases);
        }
        let state_dir = resolve_state_dir(arguments.state_dir.as_ref(), &environment, &file);
        let folder = find_run(state_dir.clone(), arguments.run.as_deref())?;
        let mut reader = RunReader::open(&folder)?;
        let at = choose_evaluator(&mut reader, &folder, arguments.evaluator.as_deref())?;
        let evaluator = folder.record.evaluators[at].clone();
        let population = CasePopulation::read(&mut reader, at)?;
        let sampling = match arguments.sampling {
            Some(SamplingOption::Uniform) => LabelSampling::Uniform,
            Some(SamplingOption::Stratified) => LabelSampling::Stratified,
            Some(SamplingOption::Active) => LabelSampling::Active,
            // A person's label is most informative where the votes of a panel disagree.
            None if population.has_votes() => LabelSampling::Active,
            None => LabelSampling::Uniform,
        };
        let drawn_from = DrawnFrom { sampling, seed: arguments.seed };
        let draw = LabelDraw::new(&population, sampling, arguments.seed)?;
        // The text of the question is optional, so a missing rubric is not an error.
        let library = rubric_library(file.eval.rubrics.iter().chain(&arguments.rubrics)).ok();
        let about = library.and_then(|library| library.find(&evaluator.name).map(|rubric| rubric.about.clone()));
        let question = about.unwrap_or_else(|| evaluator.title.clone());
        Ok(PreparedCalibration { arguments, state_dir, reader, evaluator, question, population, draw, drawn_from })
    }

    fn run(&mut self) -> Result<CommandExit, CalibrateError> {
        if self.population.cases.is_empty() {
            print_diagnostic(&format!("{} has no verdicts in run {}", self.evaluator.name, self.run_id()));
            return Ok(CommandExit::NothingFound);
        }
        let Some(path) = &self.arguments.write_cases else { return self.calibrate() };
        let count = self.write_cases(path)?;
        print_diagnostic(&format!(
            "{count} cases written to {}: fill in `label`, then give it to --labels",
            path.display()
        ));
        Ok(CommandExit::Pass)
    }

    fn run_id(&self) -> &str {
        &self.reader.record.run_id
    }

    /// Indices of the drawn cases, in the order of the draw.
    fn drawn_cases(&self) -> &[usize] {
        &self.draw.order()[..self.arguments.cases.min(self.draw.order().len())]
    }

    /// Loads the trajectories of the drawn cases with their outcomes.
    fn load_trajectories(&mut self) -> Result<HashMap<String, (Trajectory, Vec<OutcomeLine>)>, RunFileError> {
        let ids: HashSet<String> =
            self.drawn_cases().iter().map(|at| self.population.cases[*at].trajectory_id.clone()).collect();
        let mut found = HashMap::new();
        self.reader.visit_selected(&ids, |trajectory, outcomes| {
            found.insert(trajectory.trajectory_id.clone(), (trajectory.clone(), outcomes.to_vec()));
        })?;
        Ok(found)
    }

    /// Writes the drawn cases without the judge's verdicts.
    fn write_cases(&mut self, path: &Path) -> Result<usize, CalibrateError> {
        let trajectories = self.load_trajectories()?;
        if path.is_file() {
            return Err(CalibrateError::CasesExist { path: path.to_owned() });
        }
        let failed = |source| CalibrateError::Output { path: path.to_owned(), source };
        let mut out = BufWriter::new(File::create(path).map_err(failed)?);
        for at in self.drawn_cases() {
            let case = &self.population.cases[*at];
            let trajectory = trajectories.get(&case.trajectory_id).map(|(trajectory, _)| trajectory);
            let step = trajectory
                .and_then(|trajectory| trajectory.steps.iter().find(|step| Some(step.index) == case.step_index));
            let line = serde_json::json!({
                "trajectory_id": case.trajectory_id,
                "step_index": case.step_index,
                "evaluator": self.evaluator.name,
                "label": null,
                "labels": self.evaluator.labels.iter().map(|(label, _)| label).collect::<Vec<_>>(),
                "question": self.question,
                "query": trajectory.and_then(|trajectory| trajectory.query.as_deref()),
                "step": step,
                "trajectory": trajectory.filter(|_| case.step_index.is_none()),
                "labeller": null,
                "draw": self.drawn_from,
            });
            json::write_line(&line, &mut out).map_err(failed)?;
        }
        out.flush().map_err(failed)?;
        Ok(self.drawn_cases().len())
    }

    /// Asks for labels, measures the judge and writes the calibration.
    fn calibrate(&mut self) -> Result<CommandExit, CalibrateError> {
        let (labels, drawn_from) = match self.arguments.labels.is_empty() {
            true => (self.label_in_terminal()?, Some(self.drawn_from)),
            false => self.read_label_files()?,
        };
        if labels.is_empty() {
            print_diagnostic("no labels yet, so nothing was written");
            return Ok(CommandExit::NothingFound);
        }
        let merged = merge_labels(labels, &self.population, &self.evaluator.labels)?;
        report_unused(&merged);
        // Labels of another draw than the options say are used with the draw that they name.
        let draw = match drawn_from {
            Some(from) if from == self.drawn_from => Some(self.draw.clone()),
            Some(from) => Some(LabelDraw::new(&self.population, from.sampling, from.seed)?),
            None => None,
        };
        let calibration = self.build_judge_calibration(&merged, draw.as_ref().zip(drawn_from));
        save_calibration(&self.arguments.output, &calibration)?;
        self.print(&calibration)?;
        Ok(CommandExit::Pass)
    }

    fn build_judge_calibration(
        &self,
        merged: &MergedLabels,
        draw: Option<(&LabelDraw, DrawnFrom)>,
    ) -> JudgeCalibration {
        let has_label: HashSet<usize> =
            merged.truths.keys().chain(&merged.disputed).chain(&merged.undecided).copied().collect();
        let drawn = draw.map(|(draw, from)| DrawnCases {
            draw,
            sampling: from.sampling,
            seed: from.seed,
            // Only a beginning of the draw is random; what was labelled beyond a gap is not used.
            count: draw.order().iter().take_while(|case| has_label.contains(case)).count(),
        });
        let manifest = &self.reader.record;
        let (created, expires) = calibration_times(self.arguments.expires);
        build_calibration(&CalibrationInput {
            manifest,
            evaluator: &self.evaluator,
            population: &self.population,
            draw: drawn,
            labels: merged,
            created,
            expires,
            gradus_version: env!("CARGO_PKG_VERSION"),
        })
    }

    fn print(&mut self, calibration: &JudgeCalibration) -> Result<(), CalibrateError> {
        let mut out = BufWriter::new(anstream::stdout().lock());
        if self.arguments.json {
            json::write_pretty(calibration, &mut out)?;
            writeln!(out)?;
            return Ok(out.flush()?);
        }
        let mut summary = EvaluationSummary::from_run(&mut self.reader)?;
        let file = CalibrationFile::new(vec![calibration.clone()]);
        apply_calibrations(&mut summary, &mut self.reader, &file, jiff::Timestamp::now())?;
        let metric = summary.find_metric(&self.evaluator.name);
        let text = CalibrationText { calibration, metric, output: &self.arguments.output };
        print_calibration(&text, &mut out)?;
        Ok(out.flush()?)
    }

    /// Reads the labels of the files, and the draw that all of them are from.
    fn read_label_files(&mut self) -> Result<(Vec<CaseLabel>, Option<DrawnFrom>), CalibrateError> {
        let mut labels = Vec::new();
        for path in &self.arguments.labels {
            let names = [&self.evaluator.name, &self.evaluator.phoenix_name];
            labels.extend(read_label_file(path, |name| names.iter().any(|known| *known == name))?);
        }
        self.resolve_spans(&mut labels)?;
        let draw = labels.first().and_then(|first| first.draw);
        let is_one_draw = labels.iter().all(|label| label.draw == draw);
        Ok((labels.into_iter().map(|label| label.label).collect(), draw.filter(|_| is_one_draw)))
    }

    /// Annotations name spans; finds the cases that these belong to.
    fn resolve_spans(&mut self, labels: &mut [FileLabel]) -> Result<(), RunFileError> {
        if labels.iter().all(|label| !label.label.trajectory_id.is_empty()) {
            return Ok(());
        }
        let of_steps = self.evaluator.of_steps;
        let mut cases: HashMap<String, (String, Option<u32>)> = HashMap::new();
        self.reader.visit_trajectories(|trajectory, outcomes| -> Result<(), RunFileError> {
            for line in outcomes.iter().filter(|line| line.step_index.is_some() == of_steps) {
                for span in OutcomeSpans::new(trajectory, line.step_index).span_ids {
                    cases.entry(span).or_insert_with(|| (trajectory.trajectory_id.clone(), line.step_index));
                }
            }
            Ok(())
        })?;
        for label in labels.iter_mut().filter(|label| label.label.trajectory_id.is_empty()) {
            if let Some((trajectory_id, step_index)) = label.span_id.as_ref().and_then(|span| cases.get(span)) {
                label.label.trajectory_id.clone_from(trajectory_id);
                label.label.step_index = *step_index;
            }
        }
        Ok(())
    }

    /// Asks until all drawn cases are labelled by this person, or the person quits.
    fn label_in_terminal(&mut self) -> Result<Vec<CaseLabel>, CalibrateError> {
        let labeller = self.arguments.labeller.clone().or_else(|| EnvironmentVariables::read().user_name);
        let labeller = labeller.unwrap_or_else(|| "me".to_owned());
        let name = format!("{}-{}.jsonl", self.run_id(), self.evaluator.name);
        let mut session = LabelSession::open(self.state_dir.join("labels").join(name), self.drawn_from)?;
        let trajectories = self.load_trajectories()?;
        let drawn = self.drawn_cases().to_vec();
        let (mut input, mut out) = (io::stdin().lock(), anstream::stdout());
        if io::stdin().is_terminal() {
            writeln!(out, "Label what is true. The judge's verdict is shown after each decision.")?;
        }
        let mut at = 0;
        while at < drawn.len() {
            let case = &self.population.cases[drawn[at]];
            let place = (case.trajectory_id.as_str(), case.step_index);
            let Some((trajectory, outcomes)) = trajectories.get(&case.trajectory_id) else {
                at += 1;
                continue;
            };
            if session.find(place.0, place.1, &labeller).is_some() {
                at += 1;
                continue;
            }
            let shown = ShownCase {
                trajectory,
                step_index: case.step_index,
                number: at + 1,
                total: drawn.len(),
                question: &self.question,
                labels: &self.evaluator.labels,
            };
            let answer = ask_person(&shown, &mut input, &mut out)?;
            match &answer {
                LabelAnswer::Label(label) => session.add(place, Some(label), &labeller)?,
                LabelAnswer::Undecided => session.add(place, None, &labeller)?,
                LabelAnswer::Back => {
                    at = at.saturating_sub(1);
                    let before = &self.population.cases[drawn[at]];
                    session.remove((&before.trajectory_id, before.step_index), &labeller)?;
                    continue;
                }
                LabelAnswer::Quit => break,
            }
            let is_verdict =
                |line: &&OutcomeLine| *line.evaluator == *self.evaluator.name && line.step_index == case.step_index;
            reveal_verdict(outcomes.iter().find(is_verdict), &answer, &mut out)?;
            at += 1;
        }
        if at < drawn.len() {
            print_diagnostic(&format!(
                "{at} of {} cases are labelled; the same command goes on from there ({})",
                drawn.len(),
                session.path().display()
            ));
        }
        Ok(session.labels().to_vec())
    }
}

/// Reports which labels do not count, and why.
fn report_unused(merged: &MergedLabels) {
    if let Some(first) = merged.unmatched.first() {
        print_diagnostic(&format!(
            "{} labels are about cases that the run has no verdict on, and do not count; the first: {}",
            merged.unmatched.len(),
            first.location
        ));
    }
}

/// Chooses the index of the evaluator to calibrate: the named one, or the only one with verdicts.
pub(super) fn choose_evaluator(
    reader: &mut RunReader,
    folder: &RunFolder,
    wanted: Option<&str>,
) -> Result<usize, CalibrateError> {
    let evaluators = &folder.record.evaluators;
    let join = |names: Vec<&str>| names.join(", ");
    if let Some(name) = wanted {
        let known = || join(evaluators.iter().map(|known| known.name.as_str()).collect());
        let at = evaluators.iter().position(|known| known.name == name);
        return at.ok_or_else(|| CalibrateError::UnknownEvaluator { name: name.to_owned(), known: known() });
    }
    let summary = EvaluationSummary::from_run(reader)?;
    let has_verdicts =
        |known: &EvaluatorRecord| summary.find_metric(&known.name).is_some_and(|metric| metric.denominator > 0);
    let judged: Vec<usize> = (0..evaluators.len()).filter(|at| has_verdicts(&evaluators[*at])).collect();
    match judged.as_slice() {
        [one] => Ok(*one),
        _ => Err(CalibrateError::SeveralEvaluators {
            known: join(judged.iter().map(|at| evaluators[*at].name.as_str()).collect()),
        }),
    }
}
