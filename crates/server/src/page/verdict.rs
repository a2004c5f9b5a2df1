//! One verdict: what was found, on what grounds, by whom, and what people say to that.

use gradus_eval::evaluator::{OFFLINE, RULES};
use gradus_eval::outcome::{OutcomeKind, OutcomeLine};
use gradus_report::html::number;
use gradus_report::html::text::{self, DisplayText};
use gradus_store::AnnotationRecord;

use super::address::PageUrl;
use super::rubrics;
use super::words::format_timestamp;
use crate::evaluators::{find_evaluator_labels, find_evaluator_title};
use crate::page::address::format_step_anchor;
use crate::page::people::LabelAuthor;
use crate::page::recorded_verdict::RecordedVerdict;
use crate::settings::ReloadableSettings;

/// More evidence than this is left out.
const MAX_EVIDENCE: usize = 20;

pub(super) struct VerdictDetailView {
    /// `pass`, `fail`, `unsure` or `na`: the class and the icon's name.
    pub(super) class: &'static str,
    pub(super) title: String,
    pub(super) label: String,
    pub(super) explanation: Option<DisplayText>,
    pub(super) evidence: Vec<DisplayText>,
    pub(super) by: String,
    pub(super) cost: Option<String>,
    pub(super) when: String,
    /// Where its rubric can be tried on the same step.
    pub(super) rubric: Option<String>,
    pub(super) said: Vec<HumanLabelView>,
    /// Steps that a verdict on the whole speaks of, and where they are.
    pub(super) mentions: Vec<(u32, String)>,
    /// None where there is nothing to agree with.
    pub(super) labelling: Option<LabelFormFields>,
}

/// What a person says.
pub(super) struct HumanLabelView {
    /// Tells people apart.
    identifier: String,
    pub(super) author: String,
    pub(super) when: String,
    pub(super) label: String,
    pub(super) note: Option<DisplayText>,
    pub(super) agrees: bool,
}

/// What a form to label it needs.
pub(super) struct LabelFormFields {
    pub(super) trajectory: String,
    pub(super) step: Option<u32>,
    pub(super) evaluator: String,
    /// What the judge says; none where it could not judge.
    pub(super) right: Option<String>,
    /// The other labels that there are. None are known of an evaluator that is in no rubric and no rule any more.
    pub(super) others: Vec<String>,
    /// Where a label brings to.
    pub(super) back: String,
    /// Tells the fields of one form from those of another.
    pub(super) key: String,
    /// What the person sees of the verdict.
    pub(super) seen: String,
}

/// Keys that are numbers.
const MAX_NUMBERS: usize = 9;

impl LabelFormFields {
    /// Whether there is more than one label to choose from, beside what the judge says: then each has a number as its key.
    pub(super) fn has_numbers(&self) -> bool {
        self.others.len() > 1 || (self.right.is_none() && !self.others.is_empty())
    }

    /// The other labels with their keys.
    pub(super) fn labels_with_shortcuts(&self) -> Vec<(&str, Option<String>)> {
        let key = |at: usize| match self.has_numbers() {
            true => (at < MAX_NUMBERS).then(|| (at + 1).to_string()),
            false => (at == 0).then(|| "x".to_owned()),
        };
        self.others.iter().enumerate().map(|(at, label)| (label.as_str(), key(at))).collect()
    }

    pub(super) fn last_number(&self) -> usize {
        self.others.len().min(MAX_NUMBERS)
    }
}

/// Tells a verdict from another to the same question: somebody may have the old one before him while the new one is given.
pub(super) fn fingerprint_verdict(line: &OutcomeLine) -> String {
    let words = line.explanation.as_deref().or(line.reason.as_deref()).unwrap_or_default();
    let text = format!("{}\n{words}", line.label.as_deref().unwrap_or_default());
    format!("{:x}", gradus_core::stable_digest(text.as_bytes()) >> 64)
}

impl VerdictDetailView {
    /// `here` is the page that it is shown on.
    pub(super) fn from_recorded(
        settings: &ReloadableSettings,
        given: &RecordedVerdict,
        said: &[AnnotationRecord],
        here: &PageUrl,
    ) -> VerdictDetailView {
        let RecordedVerdict { at_ns, is_wrong, line } = given;
        let known = find_evaluator_labels(settings, &line.evaluator);
        let class = match line.outcome {
            OutcomeKind::Scored if *is_wrong => "fail",
            OutcomeKind::Scored => "pass",
            OutcomeKind::Failed => "unsure",
            OutcomeKind::NotApplicable => "na",
        };
        let label = match (line.outcome, &line.label) {
            (_, Some(label)) => text::format_display_line(label),
            (OutcomeKind::NotApplicable, None) => "not applicable".to_owned(),
            (_, None) => "could not be judged".to_owned(),
        };
        let words = line.explanation.as_deref().or(line.reason.as_deref());
        let target = format_label_target(&line.trajectory_id, line.step_index);
        let is_about = |one: &&AnnotationRecord| {
            one.target == target && one.name == *line.evaluator && one.annotator == "HUMAN" && one.label.is_some()
        };
        let is_rules = matches!(&*line.judge, OFFLINE | RULES);
        VerdictDetailView {
            class,
            title: find_evaluator_title(settings, &line.evaluator),
            label,
            explanation: words.filter(|words| !words.is_empty()).map(text::format_display_block),
            evidence: line.evidence.iter().take(MAX_EVIDENCE).map(|piece| text::format_display_block(piece)).collect(),
            by: if is_rules { "rules".to_owned() } else { text::format_display_line(&line.judge) },
            cost: match (line.cost_usd, line.cached) {
                (_, true) => Some("from the cache".to_owned()),
                (Some(cost), false) if !is_rules => Some(number::format_usd(cost)),
                _ => None,
            },
            when: format_timestamp(*at_ns),
            rubric: settings.library.find(&line.evaluator).map(|rubric| {
                let step = line.step_index.map(|step| step.to_string());
                rubrics::build_rubric_url(&rubric.name)
                    .with("trajectory", Some(&line.trajectory_id))
                    .with("step", step.as_deref())
                    .to_string()
            }),
            said: said.iter().filter(is_about).map(|one| HumanLabelView::from_annotation(one, line)).collect(),
            mentions: Vec::new(),
            labelling: (line.outcome != OutcomeKind::NotApplicable).then(|| LabelFormFields {
                trajectory: line.trajectory_id.to_string(),
                step: line.step_index,
                evaluator: line.evaluator.to_string(),
                right: line.label.clone(),
                back: here.clone().with_fragment(format_step_anchor(line.step_index)).to_string(),
                seen: fingerprint_verdict(line),
                key: format!(
                    "{:x}",
                    gradus_core::stable_digest(format!("{} {target}", line.evaluator).as_bytes()) >> 96
                ),
                others: known
                    .into_iter()
                    .map(|(other, _)| other)
                    .filter(|other| Some(other) != line.label.as_ref())
                    .collect(),
            }),
        }
    }

    /// Whether a person has labelled it.
    pub(super) fn is_labelled_by(&self, person: &LabelAuthor) -> bool {
        self.said.iter().any(|one| one.identifier == person.identifier)
    }

    pub(super) fn is_wrong(&self) -> bool {
        self.class == "fail"
    }
}

impl HumanLabelView {
    fn from_annotation(row: &AnnotationRecord, line: &OutcomeLine) -> HumanLabelView {
        HumanLabelView {
            identifier: row.identifier.clone(),
            author: row.author.clone(),
            when: format_timestamp(row.updated_ns),
            label: text::format_display_line(row.label.as_deref().unwrap_or_default()),
            note: row.explanation.as_deref().filter(|note| !note.is_empty()).map(text::format_display_block),
            agrees: row.label == line.label,
        }
    }
}

/// What a label is about, as annotations name it.
pub(super) fn format_label_target(trajectory: &str, step: Option<u32>) -> String {
    match step {
        Some(step) => format!("trajectory:{trajectory}#{step}"),
        None => format!("trajectory:{trajectory}"),
    }
}
