//! The parameters of the review page: which verdicts, and the position in their order.

use gradus_eval::calibration::LabelSampling;
use gradus_store::ReviewFilter;
use serde::Deserialize;

use super::address::PageUrl;
use super::label_authors::LabelAuthor;
use super::time_bound::parse_time_bound;
use crate::clock::DAY_NS;
use crate::http_error::ApiError;

/// Parameters of `/review`.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ReviewQuery {
    pub(super) project: Option<String>,
    pub(super) agent: Option<String>,
    pub(super) version: Option<String>,
    pub(super) model: Option<String>,
    /// The period in which the runs began, with times as in the list of traces.
    pub(super) from: Option<String>,
    pub(super) to: Option<String>,
    pub(super) evaluator: Option<String>,
    /// `all`, `wrong`, `failed` for questions without a verdict, `sample` and `sample_by_label` for a random sample
    /// without the verdicts.
    pub(super) which: ReviewSelection,
    /// Cursor: the verdict after which to continue. Skipping sets it. In a sample, the first position to show.
    pub(super) after: Option<String>,
    /// The random sample, by the text of its draw; without it, the one that was labelled last, or a new one.
    pub(super) draw: Option<String>,
    /// The position in the sample whose label this person has just given: its verdict is shown now.
    pub(super) revealed: Option<String>,
    /// Only verdicts of this failure group, by its key.
    pub(super) group: Option<String>,
    /// The verdict to show instead of the next one: the one whose label was just undone. In a sample, its position.
    pub(super) at: Option<String>,
    /// Number of the label that this person has just given, which can be undone.
    pub(super) labelled: Option<String>,
    /// The note of the label that was just undone.
    pub(super) note: Option<String>,
}

/// Which verdicts are reviewed. The default is all of them in order: labels on wrong verdicts only would bias the
/// measured agreement.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ReviewSelection {
    #[default]
    #[serde(alias = "")]
    All,
    Wrong,
    Failed,
    /// Every verdict with the same probability, without the verdict.
    Sample,
    /// Equally many verdicts of each judge label, without the verdict.
    SampleByLabel,
}

impl ReviewSelection {
    /// Returns how verdicts are drawn; `None` if they are shown in order.
    pub(super) fn sampling(self) -> Option<LabelSampling> {
        match self {
            ReviewSelection::Sample => Some(LabelSampling::Uniform),
            ReviewSelection::SampleByLabel => Some(LabelSampling::Stratified),
            _ => None,
        }
    }
}

impl ReviewQuery {
    /// Drops the parameters that a form sends empty.
    pub(super) fn without_blanks(mut self) -> ReviewQuery {
        let given = [
            &mut self.project,
            &mut self.agent,
            &mut self.version,
            &mut self.model,
            &mut self.from,
            &mut self.to,
            &mut self.evaluator,
            &mut self.after,
            &mut self.draw,
            &mut self.revealed,
            &mut self.group,
            &mut self.at,
            &mut self.labelled,
            &mut self.note,
        ];
        for text in given {
            text.take_if(|text| text.is_empty());
        }
        self
    }

    /// Returns the filter of the store for this person. 400 for a time that cannot be parsed.
    pub(super) fn to_filter(&self, author: &LabelAuthor) -> Result<ReviewFilter, ApiError> {
        Ok(ReviewFilter {
            project: self.project.clone(),
            agent: self.agent.clone(),
            version: self.version.clone(),
            model: self.model.clone(),
            from_ns: parse_time_bound("from", self.from.as_deref(), 0)?,
            to_ns: parse_time_bound("to", self.to.as_deref(), DAY_NS)?,
            evaluator: self.evaluator.clone(),
            only_wrong: self.which == ReviewSelection::Wrong,
            only_failed: self.which == ReviewSelection::Failed,
            failure_group: self.group.clone(),
            author: author.identifier.clone(),
        })
    }

    /// The parameters that the form does not show. A sample is drawn from all verdicts, so the page leaves them out of its form.
    pub(super) fn hidden_limits(&self) -> [(&'static str, &Option<String>); 6] {
        [
            ("agent", &self.agent),
            ("version", &self.version),
            ("model", &self.model),
            ("from", &self.from),
            ("to", &self.to),
            ("group", &self.group),
        ]
    }

    /// Returns the URL of this queue without the cursor.
    pub(super) fn to_url(&self) -> PageUrl {
        let which = match self.which {
            ReviewSelection::All => None,
            ReviewSelection::Wrong => Some("wrong"),
            ReviewSelection::Failed => Some("failed"),
            ReviewSelection::Sample => Some("sample"),
            ReviewSelection::SampleByLabel => Some("sample_by_label"),
        };
        let url = PageUrl::from_path("/review")
            .with("project", self.project.as_deref())
            .with("evaluator", self.evaluator.as_deref())
            .with("which", which);
        self.hidden_limits().into_iter().fold(url, |url, (name, value)| url.with(name, value.as_deref()))
    }
}
