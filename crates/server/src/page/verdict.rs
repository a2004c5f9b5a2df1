//! One verdict: label, explanation, evidence, judge, and the labels of people.

use gradus_eval::evaluator::{OFFLINE_JUDGE, OUTCOME, RULES_JUDGE};
use gradus_eval::outcome::{OutcomeKind, OutcomeLine};
use gradus_report::html::number;
use gradus_report::html::text::{self, DisplayText};
use gradus_store::AnnotationRecord;

use super::address::PageUrl;
use super::display_text::format_timestamp;
use super::rubric_addresses::build_rubric_url;
use crate::evaluators::{find_answer_labels, find_evaluator_title};
use crate::page::address::format_step_anchor;
use crate::page::label_authors::LabelAuthor;
use crate::recorded_verdict::RecordedVerdict;
use crate::settings::ReloadableSettings;

/// Maximum number of pieces of evidence, and of remarks, that are shown.
const MAX_EVIDENCE: usize = 20;

/// A verdict, ready to be displayed.
pub(super) struct VerdictDetailView {
    /// `pass`, `ok` (right by rules, shown without a colour), `fail`, `unsure` or `na`: the CSS class.
    pub(super) class: &'static str,
    pub(super) title: String,
    /// Whether it is the verdict on how the run ended, which is shown at the top of its page.
    pub(super) is_outcome: bool,
    /// Whether rules decided, and no model.
    pub(super) is_rules: bool,
    /// The label, or why there is none.
    pub(super) label: String,
    /// Whether the judge gave a label.
    pub(super) is_answered: bool,
    pub(super) explanation: Option<DisplayText>,
    pub(super) evidence: Vec<DisplayText>,
    /// What rules noticed without deciding anything.
    pub(super) remarks: Vec<VerdictRemark>,
    /// The judge: `rules`, or provider and model.
    pub(super) by: String,
    /// Id of the rule that decided.
    pub(super) rule: Option<String>,
    /// Price of the question. None for rules and where it is not known.
    pub(super) cost: Option<String>,
    pub(super) when: String,
    /// URL for a trial of the rubric on the same step. None if the rubric is not known.
    pub(super) rubric: Option<String>,
    pub(super) said: Vec<HumanLabelView>,
    /// Steps that a verdict on the whole mentions, with their URLs. Filled in by `StepMentions`.
    pub(super) mentions: Vec<(u32, String)>,
    /// Fields of the label form. None if the question did not apply, since a label needs a verdict.
    pub(super) labelling: Option<LabelFormFields>,
}

/// A remark of a rule.
pub(super) struct VerdictRemark {
    pub(super) rule: String,
    pub(super) text: DisplayText,
}

/// The label of a person.
pub(super) struct HumanLabelView {
    /// Distinguishes people; see `LabelAuthor::identifier`.
    identifier: String,
    pub(super) author: String,
    pub(super) when: String,
    pub(super) label: String,
    pub(super) note: Option<DisplayText>,
    pub(super) agrees: bool,
}

/// Fields of the form that labels a verdict.
pub(super) struct LabelFormFields {
    pub(super) trajectory: String,
    pub(super) step: Option<u32>,
    pub(super) evaluator: String,
    /// Label of the judge; none if it failed.
    pub(super) right: Option<String>,
    /// The other labels of the rubric. Empty if the rubric is not known any more.
    pub(super) others: Vec<String>,
    /// Path to return to after labelling.
    pub(super) back: String,
    /// Makes element ids unique: a page has many of these forms.
    pub(super) key: String,
    /// Fingerprint of the verdict, to detect that it changed. Empty if the verdict is not shown.
    pub(super) seen: String,
    /// The random sample that the case is from. The judge's verdict is hidden then.
    pub(super) draw: Option<String>,
    /// The person's earlier input.
    pub(super) note: String,
    pub(super) other: String,
}

/// Maximum number of number keys for shortcuts.
const MAX_NUMBER_KEYS: usize = 9;

impl LabelFormFields {
    /// Whether the labels have number keys. With a single other label the key is `x`.
    pub(super) fn has_numbers(&self) -> bool {
        self.others.len() > 1 || (self.right.is_none() && !self.others.is_empty())
    }

    /// Returns the other labels with their keys.
    pub(super) fn labels_with_shortcuts(&self) -> Vec<(&str, Option<String>)> {
        let key = |at: usize| match self.has_numbers() {
            true => (at < MAX_NUMBER_KEYS).then(|| (at + 1).to_string()),
            false => (at == 0).then(|| "x".to_owned()),
        };
        self.others.iter().enumerate().map(|(at, label)| (label.as_str(), key(at))).collect()
    }

    /// Returns the highest number key, for the help text.
    pub(super) fn last_number(&self) -> usize {
        self.others.len().min(MAX_NUMBER_KEYS)
    }
}

/// Returns a digest of label and explanation, which distinguishes verdicts on the same question: a person may still
/// see the old verdict while a new one is stored.
pub(super) fn fingerprint_verdict(line: &OutcomeLine) -> String {
    let words = line.explanation.as_deref().or(line.reason.as_deref()).unwrap_or_default();
    let text = format!("{}\n{words}", line.label.as_deref().unwrap_or_default());
    format!("{:x}", gradus_core::stable_digest(text.as_bytes()) >> 64)
}

impl VerdictDetailView {
    /// Builds the view. `here` is the URL of the page that shows the verdict. Of `said` only labels on this verdict
    /// are used.
    pub(super) fn from_recorded(
        settings: &ReloadableSettings,
        given: &RecordedVerdict,
        said: &[AnnotationRecord],
        here: &PageUrl,
    ) -> VerdictDetailView {
        let RecordedVerdict { at_ns, is_wrong, line } = given;
        let known = find_answer_labels(settings, &line.evaluator);
        let is_rules = matches!(&*line.judge, OFFLINE_JUDGE | RULES_JUDGE);
        let class = match line.outcome {
            OutcomeKind::Scored if *is_wrong => "fail",
            // A label without a score is neither good nor bad.
            OutcomeKind::Scored if line.score.is_none() => "na",
            // Rules only notice mistakes: without one, the verdict is not shown as right.
            OutcomeKind::Scored if is_rules => "ok",
            OutcomeKind::Scored => "pass",
            OutcomeKind::Failed => "unsure",
            OutcomeKind::NotApplicable | OutcomeKind::Abstained => "na",
        };
        let label = match (line.outcome, &line.label) {
            (_, Some(label)) => text::format_display_line(label),
            (OutcomeKind::NotApplicable, None) => "not applicable".to_owned(),
            (OutcomeKind::Abstained, None) if is_rules => "no rule fired".to_owned(),
            (OutcomeKind::Abstained, None) => "cannot judge".to_owned(),
            (_, None) => "could not be judged".to_owned(),
        };
        let words = line.explanation.as_deref().or(line.reason.as_deref());
        let target = format_label_target(&line.trajectory_id, line.step_index);
        // Annotations without a label are comments and agree with nothing.
        let is_about = |one: &&AnnotationRecord| {
            one.target == target && one.name == *line.evaluator && one.annotator == "HUMAN" && one.label.is_some()
        };
        VerdictDetailView {
            class,
            title: find_evaluator_title(settings, &line.evaluator),
            is_outcome: *line.evaluator == *OUTCOME,
            is_rules,
            is_answered: line.label.is_some(),
            label,
            explanation: words.filter(|words| !words.is_empty()).map(text::format_display_block),
            evidence: line
                .evidence
                .iter()
                // The explanation may quote it already.
                .filter(|piece| !words.is_some_and(|words| words.contains(piece.trim())))
                .take(MAX_EVIDENCE)
                .map(|piece| text::format_display_block(piece))
                .collect(),
            remarks: line
                .remarks
                .iter()
                .take(MAX_EVIDENCE)
                .map(|remark| VerdictRemark {
                    rule: text::format_display_line(&remark.rule),
                    text: text::format_display_block(&remark.text),
                })
                .collect(),
            rule: line.rule.as_deref().map(text::format_display_line),
            by: if is_rules { "rules".to_owned() } else { text::format_display_line(&line.judge) },
            cost: match (line.cost_usd, line.cached) {
                (_, true) => Some("from the cache".to_owned()),
                (Some(cost), false) if !is_rules => Some(number::format_usd(cost)),
                _ => None,
            },
            when: format_timestamp(*at_ns),
            rubric: settings.library.find(&line.evaluator).map(|rubric| {
                let step = line.step_index.map(|step| step.to_string());
                build_rubric_url(&rubric.name)
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
                draw: None,
                note: String::new(),
                other: String::new(),
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

    /// Whether this person has labelled the verdict.
    pub(super) fn is_labelled_by(&self, person: &LabelAuthor) -> bool {
        self.said.iter().any(|one| one.identifier == person.identifier)
    }

    /// Whether the verdict is wrong, which is decided when it is recorded; see `RecordedVerdict::is_wrong`.
    pub(super) fn is_wrong(&self) -> bool {
        self.class == "fail"
    }
}

impl HumanLabelView {
    pub(super) fn is_by(&self, person: &LabelAuthor) -> bool {
        self.identifier == person.identifier
    }

    /// Builds the view of a label. `agrees` compares labels, not scores: two labels may have the same score.
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

/// Formats the target of a label as annotations have it: `trajectory:ID` or `trajectory:ID#STEP`.
pub(super) fn format_label_target(trajectory: &str, step: Option<u32>) -> String {
    match step {
        Some(step) => format!("trajectory:{trajectory}#{step}"),
        None => format!("trajectory:{trajectory}"),
    }
}
