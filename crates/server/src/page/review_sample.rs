//! Review of a random sample: the next case without its verdict, and the verdict on the case before.

use axum::http::StatusCode;
use gradus_eval::calibration::LabelSampling;
use gradus_report::html::number::format_count;
use gradus_store::ReviewItem;

use super::address::PageUrl;
use super::blind_sample::{self, BlindSample, MAX_SAMPLE_LABELS, SampleDraw};
use super::display_text::format_timestamp;
use super::label_authors::LabelAuthor;
use super::review_item::{QueuePosition, ReviewItemView};
use super::review_query::ReviewQuery;
use super::verdict::VerdictDetailView;
use crate::clock::now_ns;
use crate::evaluators::find_answer_labels;
use crate::http_error::ApiError;
use crate::state::ServerState;

/// Maximum number of cases that are skipped in one request because their trace is changing.
const MAX_SKIPPED_VERDICTS: usize = 20;

/// A random sample without the verdicts.
#[derive(Default)]
pub(super) struct SampleView {
    /// How it was drawn and how far this person is, or why there is none.
    pub(super) about: String,
    /// The case that this person has just labelled, with the judge's verdict.
    pub(super) revealed: Option<RevealedVerdict>,
    /// URL of a new sample, up to now.
    pub(super) renew: Option<String>,
    /// None without a dimension.
    pub(super) progress: Option<QueuePosition>,
    /// The case was labelled before, so its verdict is known to this person.
    pub(super) is_again: bool,
}

/// A verdict that was hidden until this person decided.
pub(super) struct RevealedVerdict {
    pub(super) verdict: VerdictDetailView,
    pub(super) own: String,
    pub(super) agrees: bool,
}

/// Builds the next case of a random sample, and the view of the sample.
pub(super) fn build_sample(
    server: &ServerState,
    choice: &ReviewQuery,
    sampling: LabelSampling,
    author: &LabelAuthor,
) -> Result<(Option<ReviewItemView>, SampleView), ApiError> {
    let Some(evaluator) = &choice.evaluator else {
        let about = "Choose a dimension: a sample is of the verdicts of one evaluator.".to_owned();
        return Ok((None, SampleView { about, ..SampleView::default() }));
    };
    let project = choice.project.as_deref();
    let labels = server.store.labels(project, MAX_SAMPLE_LABELS)?;
    let now_s = now_ns() / 1_000_000_000;
    let draw = match &choice.draw {
        Some(text) => text.parse().map_err(|()| ApiError::bad_request("draw: not a random sample"))?,
        None => blind_sample::choose_sample_draw(&labels, evaluator, project, sampling, now_s),
    };
    let sample = BlindSample::load(server, evaluator, project, draw)?;
    let labelled = sample.labelled_by(&labels, &author.identifier);
    let number = |text: &Option<String>| {
        let number = text.as_deref().map(str::parse::<usize>).transpose();
        number.map_err(|_| ApiError::bad_request("after: not a position in the sample"))
    };
    let mut from = number(&choice.after)?.unwrap_or(0);
    let here = choice.to_url().with("draw", Some(&draw.to_string()));
    let again = number(&choice.at)?;
    let (mut item, mut shown_at) = (None, None);
    for attempt in 0..MAX_SKIPPED_VERDICTS {
        let next = again.filter(|_| attempt == 0).or_else(|| sample.next_position(&labelled, from));
        let Some(position) = next else { break };
        item = load_sampled_item(server, choice, &sample, position, &here)?;
        if item.is_some() {
            shown_at = Some(position);
            break;
        }
        from = position + 1;
    }
    let revealed = match number(&choice.revealed)?.and_then(|position| sample.item_at(position)) {
        Some(found) => reveal_verdict(server, &found, author)?,
        None => None,
    };
    let how = match draw.sampling {
        LabelSampling::Stratified => "as many of each label of the judge",
        _ => "every verdict with the same probability",
    };
    let about = format!(
        "Random sample of {} verdicts up to {}, {how}. You have labelled {}. The judge's verdict is shown after yours.",
        format_count(sample.len() as u64),
        format_timestamp(draw.until_s * 1_000_000_000),
        format_count(labelled.len() as u64),
    );
    let count = sample.len() as u64;
    let position = match shown_at {
        Some(position) => format!("{} of {}", format_count(position as u64 + 1), format_count(count)),
        None => format!("of {}", format_count(count)),
    };
    let progress = QueuePosition::new(position, labelled.len() as u64, count, false);
    let new = SampleDraw { until_s: now_s, ..sample.draw() };
    let renew = choice.to_url().with("draw", Some(&new.to_string())).to_string();
    let is_again = again.is_some() && again == shown_at;
    Ok((item, SampleView { about, revealed, renew: Some(renew), progress: Some(progress), is_again }))
}

/// Loads a case without anything that reveals its verdict. `None` if it cannot be shown.
fn load_sampled_item(
    server: &ServerState,
    choice: &ReviewQuery,
    sample: &BlindSample,
    position: usize,
    here: &PageUrl,
) -> Result<Option<ReviewItemView>, ApiError> {
    let Some(found) = sample.item_at(position) else { return Ok(None) };
    let mut item = match ReviewItemView::load_for_review(server, choice, &found) {
        Ok(Some(item)) => item,
        Ok(None) => return Ok(None),
        Err(error) if error.status() == StatusCode::NOT_FOUND => return Ok(None),
        Err(error) => return Err(error),
    };
    let labels = find_answer_labels(&server.reloadable(), &sample.evaluator.name);
    item.hide_verdict(labels.into_iter().map(|(label, _)| label).collect());
    item.skip = here.clone().with("after", Some(&(position + 1).to_string())).to_string();
    if let Some(form) = &mut item.verdict.labelling {
        form.draw = Some(format!("{} {}", sample.draw(), choice.project.as_deref().unwrap_or_default()));
        form.back = here.clone().with("revealed", Some(&position.to_string())).to_string();
    }
    Ok(Some(item))
}

/// Loads the verdict on a case that this person has labelled; `None` if the person has not.
fn reveal_verdict(
    server: &ServerState,
    found: &ReviewItem,
    author: &LabelAuthor,
) -> Result<Option<RevealedVerdict>, ApiError> {
    let verdict = match ReviewItemView::load_for_review(server, &ReviewQuery::default(), found) {
        Ok(Some(item)) => item.verdict,
        Ok(None) => return Ok(None),
        Err(error) if error.status() == StatusCode::NOT_FOUND => return Ok(None),
        Err(error) => return Err(error),
    };
    let own = verdict.said.iter().find(|said| said.is_by(author)).map(|said| (said.label.clone(), said.agrees));
    Ok(own.map(|(own, agrees)| RevealedVerdict { verdict, own, agrees }))
}
