//! The judge that a calibration was measured with: one model, or a panel that counts as one judge. Doc comments of the
//! types become descriptions in `docs/schemas/calibration.schema.json`.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::calibration_mismatch::CalibrationMismatch;
use crate::report::AnswerHead;
use crate::run::{EvaluatorRecord, JudgeModelRecord, PanelRecord, RunManifest};

/// Maximum number of answering models stored for each judge. An endpoint that names more is not a single model
/// anyway.
const MAX_ANSWERED_MODELS: usize = 20;

/// The judge whose verdicts were labelled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CalibratedJudge {
    /// Provider and model as asked, `openai:gpt-4o`; `offline`; or a panel as one judge, `panel(openai:a, openai:b)`.
    pub name: String,
    /// The models that were asked, in the order of the options; the one of `--escalate-to` is the last. Empty for
    /// rule-based judges.
    #[serde(default)]
    pub models: Vec<CalibratedModel>,
    /// How several judges or repeats come to one verdict. Absent where one judge is asked once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub panel: Option<CalibratedPanel>,
}

/// One model, as it was asked and as it answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CalibratedModel {
    #[serde(flatten)]
    pub asked: JudgeModelRecord,
    /// The models that answered, as the endpoint names them. Empty if it does not.
    #[serde(default)]
    pub answered_by: Vec<String>,
}

/// A panel, whose votes are one verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CalibratedPanel {
    #[serde(flatten)]
    pub members: PanelRecord,
    pub rule: VotingRule,
}

/// How votes become a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VotingRule {
    /// The label with the most votes.
    MostVotes,
    /// The mean of the scores, for rubrics with more than two different ones.
    MeanScore,
}

impl VotingRule {
    /// The rule for the labels of a rubric.
    pub(super) fn for_labels(evaluator: &EvaluatorRecord) -> VotingRule {
        let scale = evaluator.scale();
        let is_between = |score: f64| score != scale.best && score != scale.worst;
        match evaluator.labels.iter().any(|(_, score)| is_between(*score)) {
            true => VotingRule::MeanScore,
            false => VotingRule::MostVotes,
        }
    }
}

/// The models that answered in a run, by the judge that was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnsweringModels(BTreeMap<String, BTreeSet<String>>);

impl AnsweringModels {
    /// Adds the models behind one outcome: those of its votes, or the one of its only answer.
    pub(super) fn add_answer(&mut self, answer: &AnswerHead) {
        self.add(&answer.judge, answer.answered_by.as_deref().filter(|_| answer.votes.is_empty()));
        for vote in &answer.votes {
            self.add(&vote.judge, vote.answered_by.as_deref());
        }
    }

    fn add(&mut self, judge: &str, model: Option<&str>) {
        let Some(model) = model else { return };
        let models = self.0.entry(judge.to_owned()).or_default();
        if models.len() < MAX_ANSWERED_MODELS {
            models.insert(model.to_owned());
        }
    }

    fn models(&self, judge: &str) -> Vec<String> {
        self.0.get(judge).map(|models| models.iter().cloned().collect()).unwrap_or_default()
    }
}

/// What is known about the judge of a run, in addition to its name.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunJudge<'r> {
    pub panel: Option<&'r PanelRecord>,
    /// `None` before anything is asked.
    pub answered: Option<&'r AnsweringModels>,
    /// Parameters with which its models are asked, as far as they are known.
    pub models: &'r [JudgeModelRecord],
}

impl CalibratedJudge {
    /// Builds the judge of an evaluator of a run. Only evaluators that ask the models of the run have models.
    pub(super) fn from_run(
        manifest: &RunManifest,
        evaluator: &EvaluatorRecord,
        answered: &AnsweringModels,
    ) -> CalibratedJudge {
        let name = evaluator.judge.clone();
        if name != manifest.judge {
            return CalibratedJudge { name, ..CalibratedJudge::default() };
        }
        let model = |asked: &JudgeModelRecord| CalibratedModel {
            answered_by: answered.models(&asked.judge),
            asked: asked.clone(),
        };
        let rule = VotingRule::for_labels(evaluator);
        CalibratedJudge {
            name,
            models: manifest.models.iter().map(model).collect(),
            panel: manifest.panel.clone().map(|members| CalibratedPanel { members, rule }),
        }
    }

    /// Checks that the judge of a run is this one. Properties that one side does not know are not compared.
    pub(super) fn check_run(&self, name: &str, run: RunJudge<'_>) -> Result<(), CalibrationMismatch> {
        let (calibrated, current) = (self.name.clone(), name.to_owned());
        if calibrated != current {
            return Err(CalibrationMismatch::Judge { calibrated, current });
        }
        // The name of a panel contains its members and repeats, but not its escalation policy.
        if let (Some(known), Some(panel)) = (&self.panel, run.panel)
            && known.members != *panel
        {
            return Err(CalibrationMismatch::Panel { judge: current });
        }
        for model in &self.models {
            let now = run.models.iter().find(|asked| asked.judge == model.asked.judge);
            let (calibrated, current) = (describe_parameters(&model.asked), now.map(describe_parameters));
            if let Some(current) = current.filter(|current| *current != calibrated) {
                return Err(CalibrationMismatch::Parameters { judge: model.asked.judge.clone(), calibrated, current });
            }
        }
        let Some(answered) = run.answered else { return Ok(()) };
        for model in &self.models {
            let current = answered.models(&model.asked.judge);
            let is_new = |name: &&String| !model.answered_by.contains(name);
            if let (false, Some(new)) = (model.answered_by.is_empty(), current.iter().find(is_new)) {
                return Err(CalibrationMismatch::AnsweredBy {
                    judge: model.asked.judge.clone(),
                    calibrated: model.answered_by.join(", "),
                    current: new.clone(),
                });
            }
        }
        Ok(())
    }
}

/// Describes the parameters that change the verdicts of a model. The answer length is left out: it only affects
/// whether there is an answer.
fn describe_parameters(asked: &JudgeModelRecord) -> String {
    let form = if asked.structured { "for JSON" } else { "for text" };
    match asked.temperature {
        Some(temperature) => format!("{form} at temperature {temperature}"),
        None => form.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(answered_by: &[&str]) -> CalibratedJudge {
        let asked = JudgeModelRecord { judge: "openai:a".to_owned(), ..JudgeModelRecord::default() };
        let answered_by = answered_by.iter().map(|name| (*name).to_owned()).collect();
        CalibratedJudge {
            name: "openai:a".to_owned(),
            models: vec![CalibratedModel { asked, answered_by }],
            panel: None,
        }
    }

    fn answered(models: &[&str]) -> AnsweringModels {
        let mut answered = AnsweringModels::default();
        models.iter().for_each(|model| answered.add("openai:a", Some(model)));
        answered
    }

    #[test]
    fn a_model_that_is_asked_otherwise_is_another_judge() {
        let asked = |temperature| JudgeModelRecord {
            judge: "openai:a".to_owned(),
            temperature,
            structured: true,
            ..JudgeModelRecord::default()
        };
        let mut calibrated = judge(&[]);
        calibrated.models[0].asked = asked(Some(0.0));
        let check = |models: &[JudgeModelRecord]| {
            calibrated
                .check_run("openai:a", RunJudge { models, ..RunJudge::default() })
                .map_err(|error| error.to_string())
        };
        assert_eq!([check(&[]), check(&[asked(Some(0.0))])], [Ok(()), Ok(())]);
        let text = "openai:a was asked for JSON at temperature 0 when it was calibrated, and for JSON in this run";
        assert_eq!(check(&[asked(None)]), Err(text.to_owned()));
    }

    #[test]
    fn another_answering_model_is_another_judge() {
        let check = |calibrated: &[&str], run: &[&str]| {
            let answered = answered(run);
            let run = RunJudge { answered: Some(&answered), ..RunJudge::default() };
            judge(calibrated).check_run("openai:a", run).map_err(|error| error.to_string())
        };
        assert_eq!(check(&["a-1"], &["a-1"]), Ok(()));
        assert_eq!(check(&["a-1", "a-2"], &["a-2"]), Ok(()), "one of those that were labelled");
        assert_eq!(
            check(&["a-1"], &["a-1", "a-2"]),
            Err("openai:a was answered by a-1 when it was calibrated, and by a-2 in this run".to_owned())
        );
        // Unknown models are not compared.
        assert_eq!(check(&[], &["a-2"]), Ok(()));
        assert_eq!(check(&["a-1"], &[]), Ok(()));
        assert_eq!(judge(&["a-1"]).check_run("openai:a", RunJudge::default()), Ok(()), "nothing was asked yet");
    }

    #[test]
    fn a_panel_fits_only_the_same_panel() {
        let record = |min_probability| PanelRecord {
            judges: vec!["openai:a".to_owned()],
            repeats: 3,
            escalate_to: Some("openai:b".to_owned()),
            min_probability: Some(min_probability),
            audit_share: Some(0.05),
        };
        let name = "cascade(openai:a, openai:b)";
        let panel = Some(CalibratedPanel { members: record(0.9), rule: VotingRule::MostVotes });
        let calibrated = CalibratedJudge { name: name.to_owned(), models: Vec::new(), panel };
        let check = |name: &str, panel: &PanelRecord| {
            calibrated.check_run(name, RunJudge { panel: Some(panel), ..RunJudge::default() })
        };
        assert_eq!(check(name, &record(0.9)), Ok(()));
        assert_eq!(check(name, &record(0.8)), Err(CalibrationMismatch::Panel { judge: name.to_owned() }));
        assert!(matches!(check("openai:a", &record(0.9)), Err(CalibrationMismatch::Judge { .. })));
    }

    #[test]
    fn endpoints_that_name_models_without_end_are_cut_off() {
        let names: Vec<String> = (0..100).map(|number| format!("m{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(answered(&names).models("openai:a").len(), MAX_ANSWERED_MODELS);
    }
}
