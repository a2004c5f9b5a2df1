//! Tokens of model calls.

use crate::dialect::NormalizedSpan;
use crate::short_text::cut_name;
use crate::trajectory::{ModelUsage, TokenUsage};

/// What a model call reports. A call without a report counts as zero.
pub(super) fn reported_tokens(facts: &NormalizedSpan<'_>) -> TokenUsage {
    TokenUsage {
        prompt: facts.prompt_tokens.unwrap_or_default(),
        completion: facts.completion_tokens.unwrap_or_default(),
        cached_prompt: facts.cached_prompt_tokens.unwrap_or_default(),
    }
}

/// Tokens by model, if the calls name more than one. Calls beyond the limit of models are left out.
pub(super) fn count_model_usage<'f, 's: 'f>(calls: impl Iterator<Item = &'f NormalizedSpan<'s>>) -> Vec<ModelUsage> {
    const MAX_MODELS: usize = 16;
    let mut usage: Vec<ModelUsage> = Vec::new();
    for facts in calls {
        let model = facts.model.as_deref().map(|model| cut_name(model).into_owned());
        match usage.iter().position(|known| known.model == model) {
            Some(at) => usage[at].tokens += reported_tokens(facts),
            None if usage.len() < MAX_MODELS => usage.push(ModelUsage { model, tokens: reported_tokens(facts) }),
            None => {}
        }
    }
    if usage.len() > 1 { usage } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(model: Option<&'static str>, prompt: u64) -> NormalizedSpan<'static> {
        NormalizedSpan { model: model.map(Into::into), prompt_tokens: Some(prompt), ..NormalizedSpan::default() }
    }

    #[test]
    fn tokens_are_counted_by_model_only_where_there_are_several() {
        let one = [call(Some("a"), 1), call(Some("a"), 2)];
        assert_eq!(count_model_usage(one.iter()), []);
        let two = [call(Some("a"), 1), call(None, 5), call(Some("a"), u64::MAX)];
        let counted: Vec<_> =
            count_model_usage(two.iter()).into_iter().map(|used| (used.model, used.tokens.prompt)).collect();
        assert_eq!(counted, [(Some("a".to_owned()), u64::MAX), (None, 5)]);
    }
}
