//! The messages of every error that a user of this crate can see, one list for each enum.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

use gradus_llm::price::PriceTable;
use gradus_llm::{CallError, LocalServer, ModelCallFailure, ModelProvider, ModelSetupError};

use crate::annotation::AnnotationNameError;
use crate::evaluator_selection::EvaluatorSelectionError;
use crate::judge::JudgeFailure;
use crate::judge_selection::JudgeConfigError;
use crate::report::{GateError, GateMetricError};
use crate::rubric::{LibraryError, Rubric, RubricError, RubricLabelError, RubricOrigin};
use crate::run::RunFileError;
use crate::tool_file::ToolFileError;
use crate::verdict::VerdictParseError;

/// One message per line.
fn list_messages<E: Display>(errors: &[E]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

#[test]
fn annotation_name_errors() {
    insta::assert_snapshot!(list_messages(&[
        AnnotationNameError::Unusable { evaluator: "call_validity".to_owned(), name: "note".to_owned() },
        AnnotationNameError::Ambiguous {
            first: "call_validity".to_owned(),
            second: "thought_to_tool".to_owned(),
            name: "tool".to_owned(),
        },
    ]));
}

#[test]
fn judge_failures() {
    let error = CallError::Unauthorized { status: 401, message: "no such key".to_owned() };
    insta::assert_snapshot!(list_messages(&[
        JudgeFailure::Case("the judge gave no label".to_owned()),
        JudgeFailure::Call("no answer within 120 s".to_owned()),
        JudgeFailure::CallLimit,
        JudgeFailure::Endpoint(ModelCallFailure { error: error.clone(), attempts: 1 }),
        JudgeFailure::Endpoint(ModelCallFailure { error, attempts: 3 }),
    ]));
}

#[test]
fn judge_config_errors() {
    let path = || PathBuf::from("prices.toml");
    let prices = PriceTable::default().add_toml("[models\n").expect_err("not TOML");
    insta::assert_snapshot!(list_messages(&[
        JudgeConfigError::EmptyJudge,
        JudgeConfigError::NoLocalModel { server: LocalServer::Ollama },
        JudgeConfigError::NoKey { provider: ModelProvider::OpenAi },
        JudgeConfigError::NoKey { provider: ModelProvider::Anthropic },
        JudgeConfigError::Timeout,
        JudgeConfigError::LoadWait,
        JudgeConfigError::Concurrency,
        JudgeConfigError::ContextTokens { context_tokens: 1_000, max_tokens: 1_024 },
        JudgeConfigError::Temperature,
        JudgeConfigError::PriceFile { path: path(), source: not_found() },
        JudgeConfigError::Prices { path: path(), source: prices },
        JudgeConfigError::Client(ModelSetupError::Scheme { shown_url: "ftp://models.example/".to_owned() }),
    ]));
}

#[test]
fn evaluator_selection_errors() {
    insta::assert_snapshot!(list_messages(&[
        EvaluatorSelectionError::Unknown {
            name: "thought_to_tol".to_owned(),
            known: "thought_to_tool, query_to_thought".to_owned(),
        },
        EvaluatorSelectionError::NoOfflineRules("helpful".to_owned()),
    ]));
}

#[test]
fn gate_errors() {
    insta::assert_snapshot!(list_messages(&[
        GateError::Form("thought_to_tool".to_owned()),
        GateError::Bar { gate: "thought_to_tool >= 85".to_owned() },
        GateError::PercentOfAmount { gate: "steps <= 10%".to_owned() },
        GateError::CostOfBaseline { gate: "cost <= baseline".to_owned() },
        GateError::Metric {
            gate: "tool >= 0.85".to_owned(),
            source: GateMetricError::Unknown { name: "tool".to_owned(), known: "thought_to_tool, combined".to_owned() },
        },
        GateError::Metric {
            gate: "outcome.crash <= 0".to_owned(),
            source: GateMetricError::UnknownOutcome {
                label: "crash".to_owned(),
                known: "answered, crashed".to_owned()
            },
        },
        GateError::Metric {
            gate: "outcome{tol=x} > 0".to_owned(),
            source: GateMetricError::Selector { text: "outcome{tol=x}".to_owned() },
        },
        GateError::Metric {
            gate: "outcome{tool=x} > 0".to_owned(),
            source: GateMetricError::NotPerTool { name: "outcome".to_owned() },
        },
        GateError::Metric {
            gate: "cost{tag=x} > 0".to_owned(),
            source: GateMetricError::WholeRun { name: "cost".to_owned() },
        },
        GateError::Metric {
            gate: "combined > 0".to_owned(),
            source: GateMetricError::MissingEvaluators {
                name: "combined".to_owned(),
                needed: "thought_to_tool, query_to_thought".to_owned()
            },
        },
        GateError::Metric { gate: "outcome{tag=x} > 0".to_owned(), source: GateMetricError::NoTags },
        GateError::Metric {
            gate: "outcome{tag=x} > 0".to_owned(),
            source: GateMetricError::UnknownTag { tag: "x".to_owned(), known: "refund, status".to_owned() },
        },
        GateError::NoBaseline { gate: "steps <= baseline".to_owned() },
        GateError::NotInBaseline {
            gate: "fit{tool=x} >= baseline".to_owned(),
            metric: "fit{tool=x}".to_owned(),
            known: "it has fit{tool=y}".to_owned()
        },
    ]));
}

#[test]
fn rubric_errors() {
    let text = "+++\nname = \"r\"\napplies_to = \"step\"\n[labels]\nyes = 1\nno = 0\n+++\nyes or no?\n{thoughts}";
    let template = Rubric::parse(text, RubricOrigin::BuiltIn).expect_err("no such variable");
    assert!(matches!(template, RubricError::Template(_)), "{template}");
    insta::assert_snapshot!(list_messages(&[
        RubricError::NoFrontMatter,
        RubricError::FrontMatter { line: 3, reason: "unknown field `titel`".to_owned() },
        RubricError::Name("Tool Choice".to_owned()),
        RubricError::Reserved("combined".to_owned()),
        RubricError::Labels(RubricLabelError::TooFew),
        RubricError::Labels(RubricLabelError::NotFinite("yes".to_owned())),
        RubricError::Labels(RubricLabelError::Blank("--".to_owned())),
        RubricError::Labels(RubricLabelError::Duplicate("Yes".to_owned())),
        RubricError::UndeclaredLabel { asked: "optimal".to_owned(), declared: "yes, no".to_owned() },
        RubricError::UnmentionedLabel("no".to_owned()),
        template,
        RubricError::UnknownRequirement("thoughts".to_owned()),
        RubricError::StepVariable { variable: "thought" },
        RubricError::FinalThoughtOfTrajectory,
        RubricError::Empty,
    ]));
}

#[test]
fn library_errors() {
    insta::assert_snapshot!(list_messages(&[
        LibraryError::Rubric { path: "mine/tone.md".to_owned(), reason: RubricError::Empty },
        LibraryError::Io { path: "mine".to_owned(), reason: not_found() },
        LibraryError::Twice {
            path: "mine/tone.md".to_owned(),
            name: "tone".to_owned(),
            other: "mine/voice.md".to_owned(),
        },
    ]));
}

#[test]
fn tool_file_errors() {
    let path = || PathBuf::from("tools.json");
    let json = serde_json::from_str::<serde_json::Value>("[1,").expect_err("no JSON");
    insta::assert_snapshot!(list_messages(&[
        ToolFileError::Read { path: path(), source: not_found() },
        ToolFileError::Json { path: path(), source: json },
        ToolFileError::Line { path: path(), line: 4 },
        ToolFileError::NoTools { path: path() },
    ]));
}

#[test]
fn verdict_parse_errors() {
    insta::assert_snapshot!(list_messages(&[
        VerdictParseError::Empty,
        VerdictParseError::NoLabel,
        VerdictParseError::UnknownLabel,
        VerdictParseError::SeveralLabels,
    ]));
}

#[test]
fn run_file_error() {
    let error = RunFileError { path: ".gradus/runs/1/run.json".to_owned(), reason: not_found() };
    insta::assert_snapshot!(error.to_string());
}
