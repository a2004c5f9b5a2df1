//! From arguments, environment and file to the judges and rubrics of a test. Every error in them is found here, before
//! a run begins or a model is asked.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gradus_eval::evaluator::{
    Evaluator, OFFLINE_JUDGE, QUERY_TO_THOUGHT, REQUEST_TO_TOOL, SEQUENCE_OPTIMALITY, THOUGHT_TO_TOOL,
};
use gradus_eval::evaluator_selection::{
    ALL_SET, CORE_SET, RULE_EVALUATORS, find_rule_evaluator, known_evaluators, rubric_library, select_evaluators,
};
use gradus_eval::judge::ModelJudge;
use gradus_eval::judge_selection::JudgeChoice;
use gradus_eval::rubric::{Rubric, RubricLibrary, RubricOrigin};
use gradus_judge_test::bias_probe::BiasProbe;
use gradus_judge_test::flaw::PlantedFlaw;
use gradus_judge_test::test_case::TestedEvaluator;

use super::arguments::JudgeTestArguments;
use crate::cli::print_diagnostic;
use crate::config::{ConfigError, ConfigFile, EnvironmentVariables};

/// Why a test cannot begin. Printed as one line, exit code 2.
#[derive(Debug, thiserror::Error)]
pub(super) enum TestSettingsError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No judge can be selected or set up: name, address, key, prices, limits.
    #[error("{reason}")]
    Judge { reason: String },
    #[error(
        "--judge {name:?} is given twice: a judge compared with itself says nothing\nhint: --repeats measures how often its own verdicts flip"
    )]
    JudgeTwice { name: String },
    /// A rubric cannot be read, or does not exist, or the judge cannot answer it.
    #[error("{reason}")]
    Rubric { reason: String },
    #[error(
        "rubric {name:?}: no planted flaw fits it\nhint: name the flaws that it must notice with --flaw; there are {flaws}"
    )]
    NoFlawFits { name: String, flaws: String },
    #[error("--flaw: the rubric {name:?} need not notice {given}\nhint: it must notice {known}")]
    OtherFlaws { name: String, given: String, known: String },
    #[error("--flaw {name:?}: there is no such flaw\nhint: there are {known}")]
    UnknownFlaw { name: String, known: String },
    #[error("--probes {name:?}: there is no such probe\nhint: there are {known}")]
    UnknownProbe { name: String, known: String },
    #[error("--{option}: give at least 1")]
    Zero { option: &'static str },
    #[error("--max-cost: give an amount of dollars")]
    MaxCost,
    #[error("--max-cost: the price of {model:?} is not known\nhint: give it with --prices FILE")]
    UnknownPrice { model: String },
    #[error("only one output can go to standard output")]
    TwoOnStdout,
}

/// A judge under test.
pub(super) struct TestedJudge {
    /// `offline`, or provider and model.
    pub(super) name: String,
    /// `None` is the offline judge.
    pub(super) judge: Option<Arc<ModelJudge>>,
    /// In the order of the rubrics under test.
    pub(super) evaluators: Vec<Evaluator>,
    pub(super) is_structured: bool,
    pub(super) concurrency: usize,
}

/// The settings of a test, checked.
pub(super) struct TestSettings {
    pub(super) judges: Vec<TestedJudge>,
    pub(super) tested: Vec<TestedEvaluator>,
    /// Rubrics under test that a model can be asked; for probes that change them.
    pub(super) rubrics: Vec<Rubric>,
    pub(super) probes: Vec<BiasProbe>,
    pub(super) state_dir: PathBuf,
}

const CORE_RUBRICS: [&str; 4] = [QUERY_TO_THOUGHT, THOUGHT_TO_TOOL, SEQUENCE_OPTIMALITY, REQUEST_TO_TOOL];

impl TestSettings {
    pub(super) fn read(arguments: &JudgeTestArguments) -> Result<TestSettings, TestSettingsError> {
        check_numbers(arguments)?;
        let environment = EnvironmentVariables::read();
        let file = ConfigFile::read(arguments.config.as_deref().or(environment.config.as_deref()))?;
        let flaws = parse_flaws(&arguments.flaw)?;
        let probes = parse_probes(&arguments.probes)?;
        let (library, names) = read_rubrics(arguments, &file)?;
        let mut judges: Vec<TestedJudge> = Vec::new();
        let given: Vec<Option<&str>> = match arguments.judge.as_slice() {
            [] => vec![None],
            several => several.iter().map(|name| Some(name.as_str())).collect(),
        };
        for name in given {
            let judge = build_judge(arguments, name, &file, &environment, &library, &names)?;
            if judges.iter().any(|other| is_same_model(other, &judge)) {
                return Err(TestSettingsError::JudgeTwice { name: judge.name });
            }
            judges.push(judge);
        }
        // Evaluators that every judge can answer. A named one that a judge cannot answer is an error above.
        let answered = |name: &str| judges.iter().all(|judge| judge.evaluators.iter().any(|one| *one.name == *name));
        let left_out: Vec<String> = names.all.iter().filter(|name| !answered(name)).cloned().collect();
        if !left_out.is_empty() {
            print_diagnostic(&format!("left out, as the offline judge has no rules for it: {}", left_out.join(", ")));
        }
        let mut tested = Vec::new();
        for name in names.all.iter().filter(|name| answered(name)) {
            let evaluator = judges[0].evaluators.iter().find(|one| *one.name == **name);
            let is_own = library.find(name).is_some_and(|rubric| rubric.origin != RubricOrigin::BuiltIn);
            if let Some(evaluator) = evaluator {
                tested.push(select_flaws(evaluator, &flaws, is_own)?);
            }
        }
        for judge in &mut judges {
            judge.evaluators.retain(|one| tested.iter().any(|tested| *tested.name == *one.name));
        }
        let rubrics = tested.iter().filter_map(|tested| library.find(&tested.name).cloned()).collect();
        let state_dir = arguments.state_dir.clone().or(environment.state_dir).or(file.state_dir);
        let state_dir = state_dir.unwrap_or_else(|| PathBuf::from(crate::config::DEFAULT_STATE_DIR));
        Ok(TestSettings { judges, tested, rubrics, probes, state_dir })
    }
}

fn check_numbers(arguments: &JudgeTestArguments) -> Result<(), TestSettingsError> {
    if arguments.cases == 0 {
        return Err(TestSettingsError::Zero { option: "cases" });
    }
    if arguments.repeats == 0 {
        return Err(TestSettingsError::Zero { option: "repeats" });
    }
    if arguments.max_cost.is_some_and(|cost| !cost.is_finite() || cost < 0.0) {
        return Err(TestSettingsError::MaxCost);
    }
    let outputs = [&arguments.json, &arguments.markdown, &arguments.write_cases];
    if outputs.into_iter().flatten().filter(|path| path.as_os_str() == "-").count() > 1 {
        return Err(TestSettingsError::TwoOnStdout);
    }
    Ok(())
}

fn parse_flaws(names: &[String]) -> Result<Vec<PlantedFlaw>, TestSettingsError> {
    let find = |name: &String| {
        PlantedFlaw::from_name(name)
            .ok_or_else(|| TestSettingsError::UnknownFlaw { name: name.clone(), known: list_flaws(&PlantedFlaw::ALL) })
    };
    names.iter().map(find).collect()
}

fn list_flaws(flaws: &[PlantedFlaw]) -> String {
    flaws.iter().map(|flaw| flaw.name()).collect::<Vec<_>>().join(", ")
}

fn parse_probes(names: &[String]) -> Result<Vec<BiasProbe>, TestSettingsError> {
    if names.iter().any(|name| name == ALL_SET) {
        return Ok(BiasProbe::ALL.to_vec());
    }
    let known = || BiasProbe::ALL.map(BiasProbe::name).join(", ");
    let find = |name: &String| {
        BiasProbe::from_name(name).ok_or_else(|| TestSettingsError::UnknownProbe { name: name.clone(), known: known() })
    };
    names.iter().map(find).collect()
}

/// The names of evaluators under test.
struct TestedNames {
    all: Vec<String>,
    /// Those that the user named, not a set.
    named: Vec<String>,
}

/// Reads the rubrics of files into a library. Returns also the names of what is tested.
fn read_rubrics(
    arguments: &JudgeTestArguments,
    file: &ConfigFile,
) -> Result<(RubricLibrary, TestedNames), TestSettingsError> {
    let rubric_error = |error: &dyn std::fmt::Display| TestSettingsError::Rubric { reason: error.to_string() };
    let mut names = TestedNames { all: Vec::new(), named: Vec::new() };
    let mut paths: Vec<PathBuf> = Vec::new();
    for given in &arguments.rubric {
        let path = Path::new(given);
        let is_path = path.extension().is_some() || given.contains(std::path::MAIN_SEPARATOR) || path.is_dir();
        if is_path {
            for rubric in RubricLibrary::check_path(path) {
                names.named.push(rubric.map_err(|error| rubric_error(&error))?.name);
            }
            paths.push(path.to_owned());
        } else if given != CORE_SET && given != ALL_SET {
            names.named.push(given.clone());
        }
    }
    let library = rubric_library(file.eval.rubrics.iter().chain(&paths)).map_err(|error| rubric_error(&error))?;
    let known = known_evaluators(&library);
    if let Some(unknown) = names.named.iter().find(|name| !known.contains(name)) {
        let known = known.join(", ");
        let reason =
            format!("there is no rubric {unknown:?}\nhint: there are {known}; a file of your own needs its path");
        return Err(TestSettingsError::Rubric { reason });
    }
    let has_set = |set: &str| arguments.rubric.iter().any(|given| given == set);
    if arguments.rubric.is_empty() || has_set(CORE_SET) {
        names.all.extend(CORE_RUBRICS.map(str::to_owned));
    }
    if has_set(ALL_SET) {
        let rules = RULE_EVALUATORS.iter().map(|make| make().name.to_string());
        let all = library.iter().map(|rubric| rubric.name.clone()).chain(rules);
        names.all.extend(all.filter(|name| !PlantedFlaw::list_for_rubric(name).is_empty()));
    }
    names.all.extend(names.named.iter().cloned());
    let mut seen = std::collections::HashSet::new();
    names.all.retain(|name| seen.insert(name.clone()));
    Ok((library, names))
}

/// Selects the flaws that an evaluator must notice: those of the table for built-in names, else those that the user
/// names.
fn select_flaws(
    evaluator: &Evaluator,
    given: &[PlantedFlaw],
    is_own: bool,
) -> Result<TestedEvaluator, TestSettingsError> {
    let name = evaluator.name.to_string();
    let known = PlantedFlaw::list_for_rubric(&name);
    let tested =
        |flaws, is_built_in| Ok(TestedEvaluator { name: name.clone(), subject: evaluator.subject, flaws, is_built_in });
    match (known.is_empty(), given.is_empty()) {
        (true, true) => Err(TestSettingsError::NoFlawFits { name, flaws: list_flaws(&PlantedFlaw::ALL) }),
        (true, false) if is_own => tested(given.to_vec(), false),
        (true, false) => Err(TestSettingsError::NoFlawFits { name, flaws: "none for it".to_owned() }),
        (false, true) => tested(known, true),
        (false, false) => {
            let both: Vec<PlantedFlaw> = known.iter().copied().filter(|flaw| given.contains(flaw)).collect();
            if both.is_empty() {
                let (given, known) = (list_flaws(given), list_flaws(&known));
                return Err(TestSettingsError::OtherFlaws { name, given, known });
            }
            tested(both, true)
        }
    }
}

fn is_same_model(one: &TestedJudge, other: &TestedJudge) -> bool {
    let address = |judge: &TestedJudge| judge.judge.as_ref().map(|model| model.client.shown_url().to_owned());
    one.name == other.name && address(one) == address(other)
}

fn build_judge(
    arguments: &JudgeTestArguments,
    name: Option<&str>,
    file: &ConfigFile,
    environment: &EnvironmentVariables,
    library: &RubricLibrary,
    names: &TestedNames,
) -> Result<TestedJudge, TestSettingsError> {
    let judge_error = |error: &dyn std::fmt::Display| TestSettingsError::Judge { reason: error.to_string() };
    let config = arguments.call.judge_config(name, file, false);
    let choice = config.select(&environment.judge_credentials()).map_err(|error| judge_error(&error))?;
    let judge = match &choice {
        JudgeChoice::Offline { by_default } => {
            if *by_default {
                print_diagnostic(
                    "no OPENAI_API_KEY or ANTHROPIC_API_KEY is set: testing `offline`, which is rules and no model",
                );
            }
            None
        }
        JudgeChoice::Model(endpoint) => {
            let mut judge = config.model_judge(endpoint).map_err(|error| judge_error(&error))?;
            judge.client = judge.client.with_max_calls(arguments.max_calls);
            if arguments.max_cost.is_some() && judge.price.is_none() {
                return Err(TestSettingsError::UnknownPrice { model: endpoint.model.clone() });
            }
            Some(Arc::new(judge))
        }
    };
    let is_structured = !config.is_plain_text;
    // A rubric of a set that the offline judge has no rules for is left out; a named one is an error.
    let can_answer = |name: &String| {
        judge.is_some()
            || names.named.contains(name)
            || find_rule_evaluator(name).is_some()
            || library.find(name).is_some_and(|rubric| Evaluator::with_offline_rules(rubric).is_some())
    };
    let asked: Vec<String> = names.all.iter().filter(|name| can_answer(name)).cloned().collect();
    let selection = select_evaluators(library, &asked, judge.as_deref(), is_structured, false)
        .map_err(|error| TestSettingsError::Rubric { reason: error.to_string() })?;
    Ok(TestedJudge {
        name: judge.as_ref().map_or_else(|| OFFLINE_JUDGE.to_owned(), |judge| judge.name()),
        evaluators: selection.evaluators,
        is_structured,
        concurrency: config.checked_concurrency().map_err(|error| judge_error(&error))?,
        judge,
    })
}
