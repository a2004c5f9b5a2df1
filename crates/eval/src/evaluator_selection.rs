//! Selects the evaluators of a run by name or by set. `gradus eval`, the benchmark and the server's live grading share
//! it, so the same names mean the same everywhere.

use std::path::PathBuf;

use crate::evaluator::{
    ARGUMENT_PROVENANCE, CALL_VALIDITY, Evaluator, OUTCOME, QUERY_TO_THOUGHT, REQUEST_TO_TOOL, SEQUENCE_OPTIMALITY,
    THOUGHT_TO_TOOL,
};
use crate::judge::ModelJudge;
use crate::rubric::{LibraryError, Rubric, RubricLibrary, RubricOrigin};

/// Evaluators that are rules only and have no rubric, in the order of reports. They run with every judge.
pub const RULE_EVALUATORS: &[fn() -> Evaluator] =
    &[Evaluator::outcome, Evaluator::call_validity, Evaluator::argument_provenance, Evaluator::error_recovery];

/// The default set: useful for every agent, at an acceptable cost with a model judge. A user's own rubrics belong to
/// it, too.
pub const CORE_SET: &str = "core";
/// Rules for coding agents. `gradus eval` adds it by itself where the sources are sessions of coding agents.
pub const CODING_SET: &str = "coding";
/// The set of all evaluators.
pub const ALL_SET: &str = "all";

/// The names of the sets.
pub const EVALUATOR_SETS: [&str; 3] = [CORE_SET, CODING_SET, ALL_SET];

/// Rules only, like [`RULE_EVALUATORS`], and of use only for coding agents.
const CODING_EVALUATORS: &[fn() -> Evaluator] = &[Evaluator::coding_conduct, Evaluator::test_claims];

/// The built-in evaluators of [`CORE_SET`].
const CORE_EVALUATORS: [&str; 7] = [
    OUTCOME,
    QUERY_TO_THOUGHT,
    THOUGHT_TO_TOOL,
    SEQUENCE_OPTIMALITY,
    REQUEST_TO_TOOL,
    CALL_VALIDITY,
    ARGUMENT_PROVENANCE,
];

/// The evaluators of a run.
#[derive(Clone, Debug, Default)]
pub struct EvaluatorSelection {
    /// Rubrics in the order of the library, then evaluators that are rules only.
    pub evaluators: Vec<Evaluator>,
    /// Rubrics of a selected set that are left out, because there is no model and the offline judge has no rules for
    /// them. The caller reports them.
    pub without_rules: Vec<String>,
}

/// Why evaluators cannot be selected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvaluatorSelectionError {
    /// `known` lists the names of all evaluators, separated by commas.
    #[error("there is no evaluation {name:?}; there are {known}, and the sets {}", EVALUATOR_SETS.join(", "))]
    Unknown { name: String, known: String },
    #[error("the offline judge has no rules for {0:?}: choose a model as the judge, or name evaluators without it")]
    NoOfflineRules(String),
}

/// The built-in rubrics plus those of the given files and folders, in this order. A user's rubric replaces the built-in
/// one of the same name.
pub fn rubric_library<'p>(paths: impl IntoIterator<Item = &'p PathBuf>) -> Result<RubricLibrary, LibraryError> {
    let mut library = RubricLibrary::built_in();
    for path in paths {
        library.add_path(path)?;
    }
    Ok(library)
}

/// The evaluator of this name that is rules only; `None` if there is none.
pub fn find_rule_evaluator(name: &str) -> Option<Evaluator> {
    RULE_EVALUATORS.iter().chain(CODING_EVALUATORS).map(|make| make()).find(|evaluator| *evaluator.name == *name)
}

/// The names of all evaluators. `--evaluators` accepts them and [`EVALUATOR_SETS`].
pub fn known_evaluators(library: &RubricLibrary) -> Vec<String> {
    let rubrics = library.iter().map(|rubric| rubric.name.clone());
    let rules = RULE_EVALUATORS.iter().chain(CODING_EVALUATORS);
    rubrics.chain(rules.map(|make| make().name.to_string())).collect()
}

/// The evaluators with these names or in these sets; [`CORE_SET`] if `names` is empty. An unknown name is an error.
/// Without a model, rubrics of a set that the offline judge has no rules for are left out. It is an error if one was
/// named, or if `is_strict` is set and it is the user's own.
pub fn select_evaluators(
    library: &RubricLibrary,
    names: &[String],
    judge: Option<&ModelJudge>,
    structured: bool,
    is_strict: bool,
) -> Result<EvaluatorSelection, EvaluatorSelectionError> {
    let known = known_evaluators(library);
    let is_known = |name: &String| known.contains(name) || EVALUATOR_SETS.contains(&name.as_str());
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        return Err(EvaluatorSelectionError::Unknown { name: unknown.clone(), known: known.join(", ") });
    }
    let is_named = |name: &str| names.iter().any(|named| named == name);
    let (has_core, has_all) = (names.is_empty() || is_named(CORE_SET), is_named(ALL_SET));
    let in_sets = |name: &str| has_all || (has_core && CORE_EVALUATORS.contains(&name));
    // Rules cost nothing: without a model, whatever they can answer is part of the core.
    let is_free = |rubric: &Rubric| has_core && judge.is_none() && Evaluator::with_offline_rules(rubric).is_some();
    let mut selection = EvaluatorSelection::default();
    for rubric in library.iter() {
        let is_own = rubric.origin != RubricOrigin::BuiltIn;
        if !(is_named(&rubric.name) || in_sets(&rubric.name) || is_own && has_core || is_free(rubric)) {
            continue;
        }
        match build_evaluator(rubric, judge, structured) {
            Ok(evaluator) => selection.evaluators.push(evaluator),
            // It was not named, so it is left out until there is a model.
            Err(_) if !(is_named(&rubric.name) || is_strict && is_own) => {
                selection.without_rules.push(rubric.name.clone());
            }
            Err(reason) => return Err(reason),
        }
    }
    let rules = RULE_EVALUATORS.iter().map(|make| make());
    let is_free = has_core && judge.is_none();
    selection.evaluators.extend(rules.filter(|one| is_named(&one.name) || in_sets(&one.name) || is_free));
    let has_coding = has_all || is_named(CODING_SET);
    let coding = CODING_EVALUATORS.iter().map(|make| make());
    selection.evaluators.extend(coding.filter(|one| has_coding || is_named(&one.name)));
    Ok(selection)
}

fn build_evaluator(
    rubric: &Rubric,
    judge: Option<&ModelJudge>,
    structured: bool,
) -> Result<Evaluator, EvaluatorSelectionError> {
    match judge {
        Some(judge) => Ok(Evaluator::with_model_judge(rubric, &judge.name(), structured)),
        None => Evaluator::with_offline_rules(rubric)
            .ok_or_else(|| EvaluatorSelectionError::NoOfflineRules(rubric.name.clone())),
    }
}

#[cfg(test)]
mod tests {
    use gradus_http::SecretString;
    use gradus_llm::{ModelEndpoint, ModelProvider};

    use super::*;
    use crate::judge_selection::JudgeConfig;

    fn model_judge() -> ModelJudge {
        let endpoint = ModelEndpoint {
            provider: ModelProvider::OpenAi,
            local_server: None,
            base_url: "http://127.0.0.1:9/v1".to_owned(),
            key: SecretString::default(),
            model: "a-model".to_owned(),
            timeout: std::time::Duration::from_secs(1),
        };
        JudgeConfig::default().model_judge(&endpoint).expect("a judge")
    }

    /// The built-in rubrics and one of the user's.
    fn library() -> RubricLibrary {
        let folder = tempfile::tempdir().expect("a folder");
        let text = "+++\nname = \"tone\"\napplies_to = \"step\"\n[labels]\npolite = 1\nrude = 0\n+++\npolite or rude? {thought}";
        std::fs::write(folder.path().join("tone.md"), text).expect("a file");
        rubric_library([&folder.path().to_owned()]).expect("a library")
    }

    fn select(names: &[&str], judge: Option<&ModelJudge>) -> Result<EvaluatorSelection, EvaluatorSelectionError> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        select_evaluators(&library(), &names, judge, true, false)
    }

    fn names(selection: &EvaluatorSelection) -> Vec<&str> {
        selection.evaluators.iter().map(|evaluator| &*evaluator.name).collect()
    }

    #[test]
    fn the_default_is_core_with_own_rubrics() {
        let judge = model_judge();
        let by_default = select(&[], Some(&judge)).expect("a selection");
        let shown = names(&by_default);
        for name in ["query_to_thought", "thought_to_tool", "sequence_optimality", "request_to_tool", "tone"] {
            assert!(shown.contains(&name), "{name}: {shown:?}");
        }
        assert!(shown.contains(&"call_validity") && !shown.contains(&"planning"), "{shown:?}");
        assert_eq!(names(&select(&["core"], Some(&judge)).expect("a selection")), shown);
    }

    #[test]
    fn no_rubric_may_have_the_name_of_a_set_or_of_rules() {
        let rules = RULE_EVALUATORS.iter().map(|make| make().name.to_string());
        for name in rules.chain(EVALUATOR_SETS.map(str::to_owned)) {
            assert!(crate::rubric::is_reserved_name(&name), "{name}");
        }
    }

    #[test]
    fn sets_and_names_may_be_mixed() {
        let judge = model_judge();
        let all = select(&["all"], Some(&judge)).expect("a selection");
        assert_eq!(names(&all), known_evaluators(&library()));
        let mixed = select(&["core", "planning", "core"], Some(&judge)).expect("a selection");
        assert_eq!(mixed.evaluators.len(), select(&[], Some(&judge)).expect("a selection").evaluators.len() + 1);
        let one = select(&["policy"], Some(&judge)).expect("a selection");
        assert_eq!(names(&one), ["policy"]);
    }

    #[test]
    fn offline_a_set_leaves_out_what_has_no_rules_and_a_name_does_not() {
        let all = select(&["all"], None).expect("a selection");
        assert!(all.without_rules.iter().any(|name| name == "planning"), "{:?}", all.without_rules);
        assert!(names(&all).contains(&"thought_to_tool") && names(&all).contains(&"call_validity"));
        assert_eq!(
            select(&["all", "planning"], None).err(),
            Some(EvaluatorSelectionError::NoOfflineRules("planning".to_owned()))
        );
        let strict = select_evaluators(&library(), &[], None, true, true).err();
        assert_eq!(strict, Some(EvaluatorSelectionError::NoOfflineRules("tone".to_owned())), "only the user's own");
        let unknown = select(&["cor"], None).expect_err("no such set").to_string();
        assert!(unknown.contains("planning") && unknown.ends_with("and the sets core, coding, all"), "{unknown}");
    }
}
