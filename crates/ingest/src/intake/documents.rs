//! What is complete in itself and no span: message lists, transcripts, sessions of other tools, and lines of our own
//! format. It goes to the sink at once.

use gradus_core::assemble;
use gradus_core::message::ChatMessage;
use gradus_core::span::{SpanId, TraceId};
use gradus_core::trajectory::{DefectKind, ExtractionDefect, RecordedAnnotation, ToolDefinition, Trajectory};
use gradus_import::ImportedTurn;

use super::RecordIntake;

/// Ids and model that accompany a message list in its document.
#[derive(Default)]
pub(crate) struct DocumentIds {
    pub id: Option<String>,
    pub session: Option<String>,
    pub model: Option<String>,
    /// The messages are those of several agents that speak under their names.
    pub is_agent_chat: bool,
    /// A record among the messages was not read, though it may have been a call or a reply.
    pub has_lost_record: bool,
}

impl RecordIntake<'_> {
    /// Adds a message list as a trajectory. `source` is the text of the document, from which an id is derived if it has
    /// none.
    pub(crate) fn add_messages(
        &mut self,
        messages: &[ChatMessage<'_>],
        ids: &DocumentIds,
        source: &[u8],
        tools: &[ToolDefinition],
    ) {
        let mut trajectories = assemble::assemble_messages(messages, tools);
        for trajectory in &mut trajectories {
            trajectory.session_id = ids.session.clone().or_else(|| ids.id.clone());
            trajectory.model.clone_from(&ids.model);
            if ids.has_lost_record {
                // Which turn it belongs to is not known any more.
                let detail = "a record of the conversation is damaged, or names a tool in a form that is not read";
                trajectory.defects.push(ExtractionDefect::new(DefectKind::UnreadableRecord, detail, None));
            }
            if ids.is_agent_chat && trajectory.steps.is_empty() {
                let detail = "a chat log of several agents without tool calls: there are no steps to grade";
                let defect = ExtractionDefect::new(DefectKind::ChatWithoutToolCalls, detail, None);
                trajectory.defects.push(defect);
            }
        }
        self.add_document(trajectories, ids.id.as_deref(), source);
    }

    /// Adds a ReAct transcript as a trajectory.
    pub(crate) fn add_transcript(&mut self, text: &str) {
        self.add_document(assemble::assemble_transcript(text), None, text.as_bytes());
    }

    /// Gives the trajectories of a document the id of the document, or a digest of its text if it has none. A
    /// repetition gets a number appended, so that the same file read twice has the same ids in the same order.
    fn add_document(&mut self, mut trajectories: Vec<Trajectory>, id: Option<&str>, source: &[u8]) {
        let base = id.map_or_else(|| format!("{:032x}", gradus_core::stable_digest(source)), str::to_owned);
        for trajectory in &mut trajectories {
            let count = self.documents.entry(base.clone()).or_default();
            let next = |count: &mut u32| {
                *count += 1;
                if *count == 1 { base.clone() } else { format!("{base}-{count}") }
            };
            let mut id = next(count);
            while !self.used_ids.insert(id.clone()) {
                id = next(count);
            }
            trajectory.trajectory_id = id;
        }
        link_document(&mut trajectories);
        self.current_source().documents += 1;
        self.emit_trajectories(trajectories);
    }

    /// Counts a session or a document of another tool.
    pub(crate) fn count_document(&mut self) {
        self.current_source().documents += 1;
    }

    /// Counts a run that answers no request. It is no trajectory.
    pub(crate) fn count_unrequested_run(&mut self) {
        self.current_source().unrequested_runs += 1;
    }

    /// Reports that a session ends in the middle of a record. That is no fault of a session that is being written.
    pub(crate) fn report_unfinished_record(&mut self, line: u64) {
        let detail = format!("{}: line {line}: the record is not finished: the session is being written", self.input);
        let defect = ExtractionDefect::new(DefectKind::UnfinishedRecord, detail, None);
        self.current_source().add_defect(&defect);
    }

    /// Adds a turn of a session of another tool. A turn that was read before, in another file, counts once.
    pub(crate) fn add_imported_turn(&mut self, turn: ImportedTurn) {
        if self.imported.is_repeated(&turn) {
            self.current_source().repeated_turns += 1;
            return;
        }
        for trajectory in self.imported.admit(turn) {
            self.add_linked_trajectory(trajectory);
        }
    }

    /// Stores an annotation of a span or a trace until its trajectory is assembled.
    pub(crate) fn add_annotation(&mut self, trace: TraceId, span: Option<SpanId>, annotation: RecordedAnnotation) {
        self.annotations.add(trace, span, annotation);
    }

    /// Adds a trajectory in our own line format.
    pub(crate) fn add_trajectory(&mut self, trajectory: Trajectory) {
        self.count_document();
        self.add_linked_trajectory(trajectory);
    }

    /// Gives a trajectory an id that no other has, and links it to the turn before.
    pub(super) fn add_linked_trajectory(&mut self, mut trajectory: Trajectory) {
        // Two files may use the same ids, and a file that others wrote may have steps without numbers or out of order.
        // Step numbers must increase, because verdicts refer to them.
        let (base, mut count) = (trajectory.trajectory_id.clone(), 1);
        while !self.used_ids.insert(trajectory.trajectory_id.clone()) {
            count += 1;
            trajectory.trajectory_id = format!("{base}-{count}");
        }
        let used_ids = &self.used_ids;
        self.turns.link_line(&mut trajectory, base, |id| used_ids.contains(id));
        if !trajectory.steps.is_sorted_by(|a, b| a.index < b.index)
            || trajectory.steps.last().is_some_and(|step| step.index == u32::MAX)
        {
            (1..).zip(&mut trajectory.steps).for_each(|(index, step)| step.index = index);
        }
        self.emit_trajectories(vec![trajectory]);
    }

    /// Passes trajectories of documents to the sink, if the selection includes them.
    fn emit_trajectories(&mut self, trajectories: Vec<Trajectory>) {
        let source = self.summary.sources.len().saturating_sub(1);
        for trajectory in trajectories {
            self.input_trajectories += 1;
            self.input_steps += trajectory.steps.len() as u64;
            if !self.selection.includes_document(trajectory.start.as_deref()) {
                self.summary.excluded_count += 1;
                continue;
            }
            let sent = (self.sink)(source, trajectory);
            self.record_failure(sent);
        }
    }
}

/// Links the turns of a document. Where nothing names their conversation, it gets the id of its first turn.
fn link_document(trajectories: &mut [Trajectory]) {
    // A transcript holds runs that have nothing to do with each other.
    if trajectories.iter().all(|trajectory| trajectory.turn_index.is_none()) {
        return;
    }
    let session = trajectories.first().map(|first| first.trajectory_id.clone()).filter(|_| trajectories.len() > 1);
    let mut previous: Option<String> = None;
    for trajectory in trajectories {
        if trajectory.session_id.is_none() {
            trajectory.session_id.clone_from(&session);
        }
        trajectory.previous_trajectory_id = previous.replace(trajectory.trajectory_id.clone());
    }
}
