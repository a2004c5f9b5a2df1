//! `gradus judge sample-size`: how many labels a calibration needs, from the verdicts of a run and the labels so far.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use gradus_core::visible::printable_line;
use gradus_eval::calibration::{CalibrationFile, JudgeCalibration, plan_labels};
use gradus_eval::report::RunReader;
use gradus_report::{BOLD, DIM, format_count, format_counted_noun};
use gradus_stats::calibration::{
    CorrectionRefusal, LabelOutlook, MIN_LABELLED_RUNS, SampleSizeError, class_labels_needed, plan_from_outlook,
};

use super::calibrate::{CalibrateError, choose_evaluator};
use crate::cli::CommandExit;
use crate::cli::run_lookup::{find_run, resolve_state_dir};
use crate::cli::sources::print_diagnostic;
use crate::config::{ConfigFile, EnvironmentVariables};

/// Level of the intervals, the same as in all reports.
const CONFIDENCE: f64 = 0.95;

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct SampleSizeArguments {
    /// The run's id, the beginning of it, or its name; without it, the latest run.
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// Whose verdicts are labelled; needed if the run has several evaluators with verdicts.
    #[arg(long, short, value_name = "NAME")]
    evaluator: Option<String>,
    /// Half of the width of the 95 % interval that is wanted.
    #[arg(long, value_name = "SIZE", default_value_t = 0.05)]
    half_width: f64,
    /// The labels so far.
    #[arg(long, value_name = "FILE", default_value = "calibration.json")]
    calibration: PathBuf,
    /// Where runs are kept [default: .gradus].
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Settings; else gradus.toml if it is here.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  gradus judge sample-size -e thought_to_tool                     within 5 points
  gradus judge sample-size v2 -e thought_to_tool --half-width 0.1

Without labels so far nothing is known about the judge, and the answer is the largest number that can be needed.

Exit codes: 0 printed, 2 bad input, 4 the run has no verdicts.";

/// Why the number of labels cannot be computed.
#[derive(Debug, thiserror::Error)]
enum LabelPlanError {
    #[error(transparent)]
    Calibrate(#[from] CalibrateError),
    #[error(transparent)]
    Size(#[from] SampleSizeError),
    #[error(transparent)]
    Outlook(#[from] CorrectionRefusal),
    #[error(transparent)]
    Terminal(#[from] io::Error),
}

/// Entry point of the command.
pub(super) fn run_sample_size_command(arguments: &SampleSizeArguments) -> anyhow::Result<CommandExit> {
    Ok(print_sample_size(arguments).map_or_else(
        |error| {
            print_diagnostic(&error.to_string());
            match error {
                LabelPlanError::Calibrate(error) => error.exit(),
                LabelPlanError::Outlook(CorrectionRefusal::EmptyPopulation) => CommandExit::NothingFound,
                LabelPlanError::Outlook(_) | LabelPlanError::Size(_) => CommandExit::BadInput,
                LabelPlanError::Terminal(_) => CommandExit::Unexpected,
            }
        },
        |()| CommandExit::Pass,
    ))
}

fn print_sample_size(arguments: &SampleSizeArguments) -> Result<(), LabelPlanError> {
    let environment = EnvironmentVariables::read();
    let file = ConfigFile::read(arguments.config.as_deref().or(environment.config.as_deref()))
        .map_err(CalibrateError::from)?;
    let state_dir = resolve_state_dir(arguments.state_dir.as_ref(), &environment, &file);
    let folder = find_run(state_dir, arguments.run.as_deref()).map_err(CalibrateError::from)?;
    let mut reader = RunReader::open(&folder).map_err(CalibrateError::from)?;
    let at = choose_evaluator(&mut reader, &folder, arguments.evaluator.as_deref())?;
    let evaluator = &folder.record.evaluators[at];
    let known = match arguments.calibration.exists() {
        true => CalibrationFile::read(&arguments.calibration).map_err(CalibrateError::from)?.calibrations,
        false => Vec::new(),
    };
    let is_it = |known: &&JudgeCalibration| {
        known.evaluator == evaluator.name
            && known.judge.name == evaluator.judge
            && known.rubric_hash == evaluator.rubric_hash
    };
    let calibration = known.iter().find(is_it);
    let outlook = plan_labels(&mut reader, at, calibration).map_err(CalibrateError::from)??;
    let plan = PrintedPlan { evaluator: &evaluator.name, labels: &evaluator.labels, calibration, outlook: &outlook };
    plan.print(arguments.half_width, &mut anstream::stdout().lock())
}

/// The content of the printed plan.
struct PrintedPlan<'p> {
    evaluator: &'p str,
    labels: &'p [(String, f64)],
    calibration: Option<&'p JudgeCalibration>,
    outlook: &'p LabelOutlook,
}

impl PrintedPlan<'_> {
    fn print(&self, half_width: f64, out: &mut dyn Write) -> Result<(), LabelPlanError> {
        let outlook = self.outlook;
        let needed = plan_from_outlook(half_width, CONFIDENCE, outlook)?;
        let have = self.calibration.map_or(0, |known| known.measures.cases);
        let from = match have {
            0 => "without labels so far, so for the worst case".to_owned(),
            _ => format!("from {}", format_counted_noun(have, "label so far", "labels so far")),
        };
        writeln!(out, "{BOLD}{}{BOLD:#}, within {half_width}, {from}", self.evaluator)?;
        writeln!(out, "\nThe corrected share needs about {BOLD}{}{BOLD:#} labels:", format_count(needed.total))?;
        for ((label, _), count) in self.labels.iter().zip(&needed.per_stratum) {
            let known = self.calibration.and_then(|known| known.measures.confusion.get(label));
            let have: u64 = known.map_or(0, |row| row.values().sum());
            writeln!(
                out,
                "  {:>7} of verdicts {}  {DIM}have {}{DIM:#}",
                format_count(*count),
                printable_line(label),
                format_count(have)
            )?;
        }
        if needed.total > outlook.judged_cases {
            let reach =
                outlook.min_half_width().map(|half| format!(", which give about {half:.2}")).unwrap_or_default();
            let judged = format_counted_noun(outlook.judged_cases, "verdict", "verdicts");
            writeln!(out, "{BOLD}Out of reach in this run:{BOLD:#} it has {judged}{reach}. Judge more runs.")?;
        }
        writeln!(out, "Rates of the judge need, of cases with that truth:")?;
        let measures = self.calibration.map(|known| &known.measures);
        for (name, rate, have) in [
            (
                "TPR: right cases",
                outlook.true_positive_rate,
                measures.map_or(0, |found| found.true_positive_rate.count),
            ),
            (
                "TNR: wrong cases",
                outlook.true_negative_rate,
                measures.map_or(0, |found| found.true_negative_rate.count),
            ),
        ] {
            // A rate of one half needs the most.
            let needed = class_labels_needed(half_width, CONFIDENCE, rate.unwrap_or(0.5), outlook.design_effect)?;
            writeln!(out, "  {:>7} {name}  {DIM}have {}{DIM:#}", format_count(needed), format_count(have))?;
        }
        writeln!(out, "{DIM}At least {MIN_LABELLED_RUNS} trajectories must be labelled for any correction.{DIM:#}")?;
        Ok(())
    }
}
