//! `gradus judge`: how far a judge can be trusted, and which judges there are. One file per subcommand.

mod calibrate;
mod calibration_text;
mod judge_test;
mod label_session;
mod list;
mod review_sample;
mod sample_size;

use clap::{Args, Subcommand};

use super::CommandExit;

pub(super) use list::{ProbedServer, find_local_servers};

#[derive(Args)]
pub(super) struct JudgeArguments {
    #[command(subcommand)]
    command: JudgeCommand,
}

#[derive(Subcommand)]
enum JudgeCommand {
    /// Test a judge on runs with known truth: right ones, and the same with one planted flaw.
    Test(Box<judge_test::JudgeTestArguments>),
    /// Label verdicts of a run, and measure how often its judge is right.
    Calibrate(Box<calibrate::CalibrateArguments>),
    /// Say how many labels a calibration needs, from the data so far.
    SampleSize(sample_size::SampleSizeArguments),
    /// List the model servers that run on this machine, and how to name their models as judges.
    List(list::JudgeListArguments),
}

/// Entry point of the command.
pub(super) fn run_judge_command(arguments: &JudgeArguments) -> anyhow::Result<CommandExit> {
    match &arguments.command {
        JudgeCommand::Test(arguments) => judge_test::run_judge_test_command(arguments),
        JudgeCommand::Calibrate(arguments) => calibrate::run_calibrate_command(arguments),
        JudgeCommand::SampleSize(arguments) => sample_size::run_sample_size_command(arguments),
        JudgeCommand::List(arguments) => list::run_judge_list(arguments),
    }
}
