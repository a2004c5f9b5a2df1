//! From `--judge`, `--repeats` and `--escalate-to` to the judges of a run.

use std::sync::Arc;

use gradus_eval::evaluator::OFFLINE_JUDGE;
use gradus_eval::judge::ModelJudge;
use gradus_eval::judge_selection::{JudgeChoice, JudgeConfig, JudgeConfigError, JudgeCredentials};
use gradus_eval::runner::{EscalationPolicy, JudgePanel, PanelError};

use crate::cli::judge_options::JudgeOptions;
use crate::config::ConfigFile;

/// Why the judges of a run cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum JudgePanelError {
    #[error(transparent)]
    Config(#[from] JudgeConfigError),
    #[error(transparent)]
    Panel(#[from] PanelError),
    #[error(
        "--judge {OFFLINE_JUDGE}: rules cannot vote with models, as they leave most questions open\nhint: leave it out; the rules about calls run beside every judge"
    )]
    OfflineMember,
    #[error(
        "--repeats: the judge is {OFFLINE_JUDGE}, which always gives the same answer\nhint: name a model with --judge"
    )]
    OfflineRepeats,
    #[error("--escalate-to: the first judge is {OFFLINE_JUDGE}, which has no doubts\nhint: name a model with --judge")]
    OfflineFirst,
    #[error("--escalate-to {OFFLINE_JUDGE}: rules cannot decide what a model is unsure of\nhint: name a model")]
    OfflineEscalation,
    #[error(
        "--base-url {url}: the judges have several providers\nhint: leave it out, and set OPENAI_BASE_URL and ANTHROPIC_BASE_URL"
    )]
    SharedAddress { url: String },
}

/// The judges of a run.
pub(super) struct SelectedJudges {
    /// `None` is the offline judge.
    pub(super) panel: Option<JudgePanel>,
    /// Whether `offline` was chosen because no key and no endpoint is set.
    pub(super) is_offline_by_default: bool,
}

impl SelectedJudges {
    /// Selects all judges. They count their requests together, so that `max_calls` holds for all.
    pub(super) fn select(
        options: &JudgeOptions,
        file: &ConfigFile,
        credentials: &JudgeCredentials,
        max_calls: Option<u64>,
        seed: u64,
    ) -> Result<SelectedJudges, JudgePanelError> {
        let config = options.judge_config(file);
        let names = options.judge.iter().map(|name| Some(name.clone()));
        let names: Vec<Option<String>> = if options.judge.is_empty() { vec![None] } else { names.collect() };
        let mut judges: Vec<ModelJudge> = Vec::new();
        for judge in &names {
            let config = JudgeConfig { judge: judge.clone(), ..config.clone() };
            match config.select(credentials)? {
                JudgeChoice::Model(endpoint) => judges.push(config.model_judge(&endpoint)?),
                JudgeChoice::Offline { .. } if names.len() > 1 => return Err(JudgePanelError::OfflineMember),
                JudgeChoice::Offline { .. } if options.repeats.is_some() => {
                    return Err(JudgePanelError::OfflineRepeats);
                }
                JudgeChoice::Offline { .. } if options.escalate_to.is_some() => {
                    return Err(JudgePanelError::OfflineFirst);
                }
                JudgeChoice::Offline { by_default } => {
                    return Ok(SelectedJudges { panel: None, is_offline_by_default: by_default });
                }
            }
        }
        if options.escalate_to.is_some() {
            let config = options.escalation_config(file);
            match config.select(credentials)? {
                JudgeChoice::Model(endpoint) => judges.push(config.model_judge(&endpoint)?),
                JudgeChoice::Offline { .. } => return Err(JudgePanelError::OfflineEscalation),
            }
        }
        check_provider_addresses(options, &judges)?;
        let mut judges = share_call_limit(judges, max_calls);
        let escalation = match options.escalate_to {
            None => None,
            Some(_) => judges.pop().map(|judge| EscalationPolicy {
                judge,
                min_probability: options.escalate_below,
                audit_share: options.audit,
                seed,
            }),
        };
        let panel = JudgePanel::new(judges, options.repeats, escalation)?;
        Ok(SelectedJudges { panel: Some(panel), is_offline_by_default: false })
    }
}

/// Refuses one address for two providers, because a key must not be sent to the wrong one.
fn check_provider_addresses(options: &JudgeOptions, judges: &[ModelJudge]) -> Result<(), JudgePanelError> {
    let providers = || judges.iter().map(|judge| judge.client.endpoint().provider);
    match (&options.call.base_url, providers().next()) {
        (Some(_), Some(first)) if providers().any(|provider| provider != first) => {
            let url = judges[0].client.shown_url().to_owned();
            Err(JudgePanelError::SharedAddress { url })
        }
        _ => Ok(()),
    }
}

fn share_call_limit(judges: Vec<ModelJudge>, max_calls: Option<u64>) -> Vec<Arc<ModelJudge>> {
    let mut counted: Vec<Arc<ModelJudge>> = Vec::with_capacity(judges.len());
    for mut judge in judges {
        judge.client = judge.client.with_max_calls(max_calls);
        if let Some(first) = counted.first() {
            judge.client = judge.client.with_shared_calls(&first.client);
        }
        counted.push(Arc::new(judge));
    }
    counted
}
