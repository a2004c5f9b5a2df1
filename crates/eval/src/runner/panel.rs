//! The judges that are asked each question of a run: one judge, several judges, one judge several times, or a cheap
//! judge before an expensive one.

use std::sync::Arc;

use crate::judge::ModelJudge;
use crate::prompt::PromptWindow;
use crate::run::{JudgeModelRecord, PanelRecord};

/// Default number of repeats of a single first judge whose endpoint reports no log-probabilities.
pub const DEFAULT_ESCALATION_REPEATS: u32 = 3;
/// Maximum votes on a question: judges times repeats. More cost money and hardly change a majority.
pub const MAX_VOTES: usize = 9;

/// The judges of a run, with how often and in which order they are asked.
#[derive(Clone, Debug)]
pub struct JudgePanel {
    /// Asked about every question. There is at least one.
    members: Vec<Arc<ModelJudge>>,
    /// How often each member is asked.
    repeats: u32,
    /// Whether repeats after the first are only asked where the endpoint reports no log-probabilities.
    are_repeats_optional: bool,
    escalation: Option<EscalationPolicy>,
}

/// The policy for escalating questions to a better judge.
#[derive(Clone, Debug)]
pub struct EscalationPolicy {
    pub judge: Arc<ModelJudge>,
    /// The first judge counts as unsure if the probability of its label is below this.
    pub min_probability: f64,
    /// The share of questions that are escalated although the first judge is sure, to check it.
    pub audit_share: f64,
    /// Chooses the questions of the audit.
    pub seed: u64,
}

/// Why judges cannot be a panel. Messages name the options of `gradus eval`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PanelError {
    #[error("--judge: no judge is given")]
    Empty,
    #[error("--judge {judge} is given twice\nhint: --repeats 2 asks one judge twice")]
    SameJudge { judge: String },
    #[error("--repeats: give a number from 1 to {MAX_VOTES}")]
    Repeats,
    #[error(
        "{judges} judges x {repeats} repeats are {} votes on each question, more than {MAX_VOTES}\nhint: name fewer judges with \
         --judge, or lower --repeats",
        judges * *repeats as usize
    )]
    TooManyVotes { judges: usize, repeats: u32 },
    #[error("--escalate-to {judge}: it is the first judge, too\nhint: name a better judge, or leave it out")]
    SameEscalation { judge: String },
    #[error("--escalate-below: give a probability from 0 to 1")]
    MinProbability,
    #[error("--audit: give a share from 0 to 1")]
    AuditShare,
}

impl From<Arc<ModelJudge>> for JudgePanel {
    /// One judge that is asked once.
    fn from(judge: Arc<ModelJudge>) -> JudgePanel {
        JudgePanel { members: vec![judge], repeats: 1, are_repeats_optional: false, escalation: None }
    }
}

impl JudgePanel {
    /// `repeats` is `None` for the default: 1, or with a single judge that can escalate
    /// [`DEFAULT_ESCALATION_REPEATS`] where nothing else shows how sure it is.
    pub fn new(
        members: Vec<Arc<ModelJudge>>,
        repeats: Option<u32>,
        escalation: Option<EscalationPolicy>,
    ) -> Result<JudgePanel, PanelError> {
        if members.is_empty() {
            return Err(PanelError::Empty);
        }
        for (at, judge) in members.iter().enumerate() {
            if members[..at].iter().any(|other| is_same_model(other, judge)) {
                return Err(PanelError::SameJudge { judge: judge.name() });
            }
        }
        if repeats.is_some_and(|repeats| !(1..=MAX_VOTES).contains(&(repeats as usize))) {
            return Err(PanelError::Repeats);
        }
        if members.len() * repeats.unwrap_or(1) as usize > MAX_VOTES {
            return Err(PanelError::TooManyVotes { judges: members.len(), repeats: repeats.unwrap_or(1) });
        }
        if let Some(policy) = &escalation {
            if members.iter().any(|member| is_same_model(member, &policy.judge)) {
                return Err(PanelError::SameEscalation { judge: policy.judge.name() });
            }
            if !(0.0..=1.0).contains(&policy.min_probability) {
                return Err(PanelError::MinProbability);
            }
            if !(0.0..=1.0).contains(&policy.audit_share) {
                return Err(PanelError::AuditShare);
            }
        }
        let are_repeats_optional = repeats.is_none() && escalation.is_some() && members.len() == 1;
        let default = if are_repeats_optional { DEFAULT_ESCALATION_REPEATS } else { 1 };
        Ok(JudgePanel { members, repeats: repeats.unwrap_or(default), are_repeats_optional, escalation })
    }

    /// Whether every question has exactly one answer, which is its outcome.
    pub fn is_single(&self) -> bool {
        self.members.len() == 1 && self.repeats == 1 && self.escalation.is_none()
    }

    /// Returns the judges that are asked about every question.
    pub fn members(&self) -> &[Arc<ModelJudge>] {
        &self.members
    }

    /// All judges, the one of the escalation last.
    pub fn judges(&self) -> impl Iterator<Item = &Arc<ModelJudge>> {
        self.members.iter().chain(self.escalation.as_ref().map(|policy| &policy.judge))
    }

    /// How often each member is asked about a question, at most.
    pub fn max_repeats(&self) -> u32 {
        self.repeats
    }

    pub(super) fn are_repeats_optional(&self) -> bool {
        self.are_repeats_optional
    }

    pub fn escalation(&self) -> Option<&EscalationPolicy> {
        self.escalation.as_ref()
    }

    /// The panel as one judge: `openai:a`, `panel(openai:a x3, openai:b x3)`, or `cascade(openai:a, openai:b)`.
    pub fn name(&self) -> String {
        let is_repeated = self.repeats > 1 && !self.are_repeats_optional;
        let times = if is_repeated { format!(" x{}", self.repeats) } else { String::new() };
        let names: Vec<String> = self.members.iter().map(|judge| format!("{}{times}", judge.name())).collect();
        let first = match names.as_slice() {
            [one] if !is_repeated => one.clone(),
            all => format!("panel({})", all.join(", ")),
        };
        match &self.escalation {
            Some(policy) => format!("cascade({first}, {})", policy.judge.name()),
            None => first,
        }
    }

    /// The addresses of all judges, each once.
    pub fn endpoints(&self) -> String {
        let mut urls: Vec<&str> = Vec::new();
        for judge in self.judges() {
            let url = judge.client.shown_url();
            if !urls.contains(&url) {
                urls.push(url);
            }
        }
        urls.join(", ")
    }

    /// Whether every judge has a price.
    pub fn is_priced(&self) -> bool {
        self.judges().all(|judge| judge.price.is_some())
    }

    /// All judges see the same prompt, so it fits the smallest window.
    pub(super) fn window(&self) -> Option<PromptWindow> {
        self.judges().map(|judge| judge.settings.window).min_by_key(|window| window.bytes)
    }

    /// The models that are asked, with everything that changes their answers.
    pub fn model_records(&self) -> Vec<JudgeModelRecord> {
        self.judges().map(|judge| judge.to_record()).collect()
    }

    /// What reports must know; `None` for one judge that is asked once.
    pub fn to_record(&self) -> Option<PanelRecord> {
        (!self.is_single()).then(|| PanelRecord {
            judges: self.members.iter().map(|judge| judge.name()).collect(),
            repeats: self.repeats,
            escalate_to: self.escalation.as_ref().map(|policy| policy.judge.name()),
            min_probability: self.escalation.as_ref().map(|policy| policy.min_probability),
            audit_share: self.escalation.as_ref().map(|policy| policy.audit_share),
        })
    }

    /// Everything that changes answers, for the fingerprint of a run.
    pub fn describe_settings(&self) -> String {
        let judges: Vec<String> = self
            .judges()
            .map(|judge| format!("{} {} {:?}", judge.name(), judge.client.shown_url(), judge.settings))
            .collect();
        let policy = self.escalation.as_ref().map(|policy| (policy.min_probability, policy.audit_share, policy.seed));
        format!("{judges:?} {} {policy:?}", self.repeats)
    }
}

impl EscalationPolicy {
    /// Whether a question belongs to the audit: a random share of all questions, the same in every run with the seed.
    pub(super) fn is_audited(&self, trajectory_id: &str, step_index: Option<u32>, evaluator: &str) -> bool {
        let step = step_index.map_or_else(String::new, |step| step.to_string());
        let text = format!("audit\0{}\0{evaluator}\0{step}\0{trajectory_id}", self.seed);
        // 53 bits are what a float holds exactly.
        let drawn = (gradus_core::stable_digest(text.as_bytes()) >> 75) as u64 as f64 / (1_u64 << 53) as f64;
        drawn < self.audit_share
    }
}

/// Two servers may call different models by one name.
fn is_same_model(one: &ModelJudge, other: &ModelJudge) -> bool {
    one.name() == other.name() && one.client.shown_url() == other.client.shown_url()
}

#[cfg(test)]
mod tests {
    use gradus_http::SecretString;
    use gradus_llm::{ModelEndpoint, ModelProvider};

    use super::*;
    use crate::judge_selection::JudgeConfig;

    fn judge(model: &str) -> Arc<ModelJudge> {
        let endpoint = ModelEndpoint {
            provider: ModelProvider::OpenAi,
            base_url: "http://127.0.0.1:9/v1".to_owned(),
            key: SecretString::default(),
            model: model.to_owned(),
            timeout: std::time::Duration::from_secs(1),
            local_server: None,
        };
        Arc::new(JudgeConfig::default().model_judge(&endpoint).expect("a judge"))
    }

    fn escalation(model: &str, audit_share: f64) -> EscalationPolicy {
        EscalationPolicy { judge: judge(model), min_probability: 0.9, audit_share, seed: 7 }
    }

    #[test]
    fn a_panel_has_a_name_as_one_judge() {
        let name = |panel: Result<JudgePanel, PanelError>| panel.map(|panel| panel.name());
        let of = |models: &[&str]| models.iter().map(|model| judge(model)).collect::<Vec<_>>();
        assert_eq!(name(Ok(judge("a").into())), Ok("openai:a".to_owned()));
        assert_eq!(name(JudgePanel::new(of(&["a"]), Some(1), None)), Ok("openai:a".to_owned()));
        assert_eq!(name(JudgePanel::new(of(&["a"]), Some(3), None)), Ok("panel(openai:a x3)".to_owned()));
        assert_eq!(name(JudgePanel::new(of(&["a", "b"]), None, None)), Ok("panel(openai:a, openai:b)".to_owned()));
        let cascade = |repeats| name(JudgePanel::new(of(&["a"]), repeats, Some(escalation("b", 0.05))));
        assert_eq!(cascade(None), Ok("cascade(openai:a, openai:b)".to_owned()));
        assert_eq!(cascade(Some(2)), Ok("cascade(panel(openai:a x2), openai:b)".to_owned()));
    }

    #[test]
    fn judges_that_are_no_panel_are_refused() {
        let new = |models: &[&str], repeats, escalation| {
            JudgePanel::new(models.iter().map(|model| judge(model)).collect(), repeats, escalation).err()
        };
        assert_eq!(new(&["a", "b", "a"], Some(3), None), Some(PanelError::SameJudge { judge: "openai:a".to_owned() }));
        assert_eq!(new(&[], None, None), Some(PanelError::Empty));
        assert_eq!(new(&["a"], Some(0), None), Some(PanelError::Repeats));
        assert_eq!(new(&["a"], Some(10), None), Some(PanelError::Repeats));
        assert_eq!(new(&["a", "b", "c"], Some(3), None), None, "nine votes");
        let many = PanelError::TooManyVotes { judges: 2, repeats: 5 };
        assert_eq!(new(&["a", "b"], Some(5), None), Some(many));
        let ten: Vec<String> = (0..10).map(|number| number.to_string()).collect();
        let ten: Vec<&str> = ten.iter().map(String::as_str).collect();
        assert_eq!(new(&ten, None, None), Some(PanelError::TooManyVotes { judges: 10, repeats: 1 }));
        let same = Some(PanelError::SameEscalation { judge: "openai:b".to_owned() });
        assert_eq!(new(&["a", "b"], None, Some(escalation("b", 0.0))), same);
        assert_eq!(new(&["a"], None, Some(escalation("b", f64::NAN))), Some(PanelError::AuditShare));
    }

    #[test]
    fn the_audit_is_a_random_share_that_never_changes() {
        let policy = escalation("b", 0.05);
        let drawn: Vec<u32> =
            (0..20_000).filter(|step| policy.is_audited("t", Some(*step), "thought_to_tool")).collect();
        assert!((900..1_100).contains(&drawn.len()), "{}", drawn.len());
        assert!(drawn.iter().all(|step| policy.is_audited("t", Some(*step), "thought_to_tool")));
        let other = EscalationPolicy { seed: 8, ..policy.clone() };
        assert!(drawn.iter().any(|step| !other.is_audited("t", Some(*step), "thought_to_tool")));
        let all = EscalationPolicy { audit_share: 1.0, ..policy.clone() };
        let none = EscalationPolicy { audit_share: 0.0, ..policy };
        assert!((0..100).all(|step| all.is_audited("t", Some(step), "e") && !none.is_audited("t", Some(step), "e")));
    }
}
