//! Makes trajectories from the events of a conversation: requests, replies, calls, results.

use std::collections::VecDeque;
use std::sync::Arc;

use gradus_core::assemble::record_missing_parts;
use gradus_core::message::ArgumentsText;
use gradus_core::trajectory::{
    DefectKind, ExtractionDefect, RecordedAnnotation, TokenUsage, ToolDefinition, Trajectory, TrajectoryStep,
};

use crate::import_sink::{ImportSink, ImportedTurn};
use crate::turn_draft::{ImportedCall, ImportedResult, TurnDraft, read_arguments};

/// Maximum number of turns that are held back, so that a later record can take them back. A conversation that was
/// rolled back further is reported.
const MAX_HELD_TURNS: usize = 32;
/// Maximum size of the texts of the turns that are held back, in bytes.
const MAX_HELD_TURN_BYTES: usize = 16 << 20;

/// One conversation, filled in the order of its record. Times are RFC 3339.
#[derive(Debug, Default)]
pub struct SessionBuilder {
    session_id: String,
    started_as: Option<String>,
    is_copy: bool,
    agent: Option<String>,
    agent_version: Option<String>,
    project: Option<String>,
    model: Option<String>,
    system_prompt: Option<Arc<str>>,
    tools: Arc<[ToolDefinition]>,
    /// Finished turns that can still be taken back.
    held: VecDeque<TurnDraft>,
    held_bytes: usize,
    current: Option<TurnDraft>,
    /// Whether a record before the next turn could not be read.
    has_lost_record: bool,
    /// Whether the context was compacted since the last call.
    is_compacted: bool,
    /// Whether the context was ever compacted: later turns also begin with a summary.
    has_compaction: bool,
    /// Why the conversation before the first turn is not recorded.
    missing_context: Option<&'static str>,
    handed_over: u32,
    previous_id: Option<String>,
}

impl SessionBuilder {
    /// Begins a conversation. `session_id` becomes the id of the first turn.
    pub fn new(session_id: impl Into<String>) -> Self {
        SessionBuilder { session_id: session_id.into(), ..SessionBuilder::default() }
    }

    /// Sets the name of the agent and its version. Applies to turns that are not handed over yet.
    pub fn set_agent(&mut self, name: &str, version: Option<&str>) {
        self.agent = Some(name.to_owned());
        self.agent_version = version.map(str::to_owned).or(self.agent_version.take());
    }

    /// Sets the id, if it is known only after the first records.
    pub fn set_session_id(&mut self, session_id: &str) {
        session_id.clone_into(&mut self.session_id);
    }

    /// Makes this the session of a subagent. See [`ImportedTurn::started_as`].
    pub fn set_started_as(&mut self, key: String) {
        self.started_as = Some(key);
    }

    /// Marks the turns as copies from the session that started this one. See [`ImportedTurn::is_copy`].
    pub fn mark_copied(&mut self) {
        self.is_copy = true;
    }

    /// Sets the folder or project that the agent worked on.
    pub fn set_project(&mut self, project: &str) {
        self.project = Some(project.to_owned());
    }

    /// Sets the model of the replies that follow, if they do not name it themselves.
    pub fn set_model(&mut self, model: &str) {
        self.model = Some(model.to_owned());
    }

    pub fn set_system_prompt(&mut self, prompt: &str) {
        self.system_prompt = (!prompt.trim().is_empty()).then(|| prompt.trim().into());
    }

    pub fn set_tools(&mut self, tools: Vec<ToolDefinition>) {
        self.tools = tools.into();
    }

    /// Whether a request is being worked on.
    pub fn has_turn(&self) -> bool {
        self.current.is_some()
    }

    /// Begins a turn with a request of the user. Consecutive requests without a reply between them are one.
    pub fn begin_turn(&mut self, query: &str, at: Option<&str>, sink: &mut dyn ImportSink) {
        let query = query.trim();
        if let Some(turn) = self.current.as_mut().filter(|turn| !turn.has_reply) {
            let asked = turn.trajectory.query.get_or_insert_default();
            if !asked.is_empty() && !query.is_empty() {
                asked.push('\n');
            }
            asked.push_str(query);
            turn.extend_time(at);
            return;
        }
        if let Some(turn) = &mut self.current {
            turn.end_reply();
            let is_explained = turn.trajectory.defects.iter().any(|defect| defect.kind == DefectKind::MissingAnswer);
            if turn.trajectory.final_answer.is_none() && !turn.trajectory.is_error && !is_explained {
                let detail = "the user wrote again before there was an answer";
                turn.trajectory.defects.push(ExtractionDefect::new(DefectKind::MissingAnswer, detail, None));
            }
        }
        self.end_turn(sink);
        let turn = self.turn();
        turn.trajectory.query = Some(query.to_owned());
        turn.extend_time(at);
    }

    /// Begins a reply of the model. Consecutive replies without a call between them are one.
    pub fn begin_reply(&mut self, at: Option<&str>) {
        let turn = self.turn();
        if turn.trajectory.steps.len() > turn.reply.first_step {
            turn.end_reply();
        } else {
            // Its texts stay: joining them for each of a thousand replies would be quadratic.
            turn.count_reply_usage();
        }
        turn.has_reply = true;
        turn.extend_time(at);
    }

    /// Begins a reply that does not continue the one before, for records whose replies are complete.
    pub fn begin_separate_reply(&mut self, at: Option<&str>) {
        self.begin_reply(at);
        let reply = &mut self.turn().reply;
        reply.texts.clear();
        reply.reasoning.clear();
    }

    /// Adds text that the model wrote, before its calls or as the answer.
    pub fn add_text(&mut self, text: &str) {
        if !text.trim().is_empty() {
            let turn = self.turn();
            turn.has_reply = true;
            if turn.has_room(text.len()) {
                turn.text_bytes += text.len();
                turn.reply.texts.push(text.to_owned());
            }
        }
    }

    /// Adds reasoning that is recorded separately from the text.
    pub fn add_reasoning(&mut self, text: &str) {
        if !text.trim().is_empty() {
            let turn = self.turn();
            turn.has_reply = true;
            if turn.has_room(text.len()) {
                turn.text_bytes += text.len();
                turn.reply.reasoning.push(text.to_owned());
            }
        }
    }

    /// Adds a call of the current reply. Returns the number of its step.
    pub fn add_call(&mut self, call: &ImportedCall<'_>, at: Option<&str>) -> u32 {
        let is_compacted = std::mem::take(&mut self.is_compacted);
        let has_compaction = self.has_compaction;
        let turn = self.turn();
        turn.has_reply = true;
        turn.extend_time(at);
        let index = turn.add_call(call, at);
        if let Some(step) = turn.trajectory.steps.last_mut() {
            step.after_compaction = is_compacted || has_compaction && index == 1;
        }
        index
    }

    /// Adds the result of a call. Returns `false` if the call is not in this turn.
    pub fn add_result(&mut self, result: &ImportedResult<'_>) -> bool {
        let turn = self.turn();
        turn.extend_time(result.at);
        turn.add_result(result)
    }

    /// Adds the result of a call of an earlier turn that is still held: the user sent a request while a tool ran.
    /// Returns `false` if no call waits for it.
    pub fn add_late_result(&mut self, result: &ImportedResult<'_>) -> bool {
        let Some(id) = result.id else { return false };
        let waits = |turn: &&mut TurnDraft| {
            turn.find_call(id).is_some_and(|step| turn.trajectory.steps[step].observation.is_none())
        };
        let Some(turn) = self.held.iter_mut().rev().find(waits) else { return false };
        let bytes_before = turn.text_bytes;
        let is_added = turn.add_result(result);
        self.held_bytes += turn.text_bytes - bytes_before;
        is_added
    }

    /// Adds the result of a step, for records that tie results to calls by position. The number is that of
    /// `add_call`.
    pub fn add_step_result(&mut self, step_index: u32, result: &ImportedResult<'_>) -> bool {
        let turn = self.turn();
        turn.extend_time(result.at);
        let step = (step_index as usize).checked_sub(1).filter(|step| *step < turn.trajectory.steps.len());
        step.is_some_and(|step| turn.set_result(step, result))
    }

    /// Whether the current turn has a call of this id.
    pub fn has_call(&self, id: &str) -> bool {
        self.current.as_ref().is_some_and(|turn| turn.steps_by_id.contains_key(id))
    }

    /// Whether the last call of this id in the current turn still waits for its result. An id that was answered can
    /// be used again: some providers restart their ids with each reply.
    pub fn has_open_call(&self, id: &str) -> bool {
        self.find_step(id).is_some_and(|step| step.observation.is_none())
    }

    /// Returns the step that a record of a whole call repeats: the last one of this id, if it is open or has the same
    /// arguments.
    pub fn find_repeated_step(&self, id: &str, arguments: Option<&ArgumentsText<'_>>) -> Option<u32> {
        let is_same = |step: &&TrajectoryStep| {
            let (parsed, raw) = read_arguments(arguments);
            step.observation.is_none() || step.arguments == parsed && step.arguments_raw == raw
        };
        self.find_step(id).filter(is_same).map(|step| step.index)
    }

    /// Returns the last step of this id in the current turn.
    pub(crate) fn find_step(&self, id: &str) -> Option<&TrajectoryStep> {
        let turn = self.current.as_ref()?;
        turn.trajectory.steps.get(turn.find_call(id)?)
    }

    /// Returns a text among the arguments of a call of the current turn.
    pub fn call_argument(&self, id: &str, key: &str) -> Option<String> {
        let turn = self.current.as_ref()?;
        let step = &turn.trajectory.steps[turn.find_call(id)?];
        Some(step.arguments.as_ref()?.get(key)?.as_str()?.to_owned())
    }

    /// Records that the call of this id started a subagent. See [`SubagentStart`](crate::SubagentStart).
    pub fn add_subagent(&mut self, call_id: &str, key: String) {
        let turn = self.turn();
        if let Some(step) = turn.find_call(call_id) {
            let step_index = turn.trajectory.steps[step].index;
            turn.add_subagent(step_index, key);
        }
    }

    /// Records that a step started a subagent, for records that tie results to calls by position.
    pub fn add_step_subagent(&mut self, step_index: u32, key: String) {
        self.turn().add_subagent(step_index, key);
    }

    /// Sets the usage of the current reply. A later call for the same reply replaces it.
    pub fn set_usage(&mut self, tokens: TokenUsage, model: Option<&str>, cost_usd: Option<f64>) {
        let model = model.or(self.model.as_deref()).map(str::to_owned);
        self.turn().reply.usage = Some((tokens, model, cost_usd));
    }

    /// Adds cost of the current turn that is not known by reply.
    pub fn add_cost(&mut self, cost_usd: f64) {
        *self.turn().trajectory.cost_usd.get_or_insert_default() += cost_usd;
    }

    /// Adds an annotation of the current turn, or of one of its steps.
    pub fn add_annotation(&mut self, annotation: RecordedAnnotation) {
        self.turn().trajectory.annotations.push(annotation);
    }

    /// Adds a defect of the current turn: something missing or malformed.
    pub fn add_defect(&mut self, kind: DefectKind, detail: &str) {
        self.turn().trajectory.defects.push(ExtractionDefect::new(kind, detail, None));
    }

    /// Marks the current or the next turn as incomplete, because a record could not be read, or was skipped though it
    /// may be a part of a reply. It may have been anything: a call, the answer, or context of the next turn.
    pub fn mark_unreadable_record(&mut self) {
        if let Some(turn) = &mut self.current {
            turn.mark_unreadable_record();
        }
        self.has_lost_record = true;
    }

    /// Records that a summary replaced the conversation so far, or that results were cleared from it. The next call
    /// is the first one that the agent makes without them; so is the first call of each later turn.
    pub fn mark_compaction(&mut self) {
        (self.is_compacted, self.has_compaction) = (true, true);
    }

    /// Records that the conversation continues one that this record does not contain. Every turn gets the defect,
    /// because the agent knows what nobody can look up.
    pub fn mark_missing_context(&mut self, reason: &'static str) {
        self.missing_context = self.missing_context.or(Some(reason));
    }

    /// Whether a turn began, whatever became of it.
    pub(crate) fn has_begun(&self) -> bool {
        self.current.is_some() || !self.held.is_empty() || self.handed_over > 0
    }

    /// Ends the current turn with an error instead of an answer.
    pub fn fail_turn(&mut self, reason: &str) {
        if is_abort(reason) {
            self.add_defect(DefectKind::MissingAnswer, "the user interrupted the request");
            return;
        }
        let turn = self.turn();
        turn.trajectory.is_error = true;
        turn.trajectory.defects.push(ExtractionDefect::new(DefectKind::RunFailed, reason, None));
    }

    /// Whether the last thing that the agent did in the current turn is an answer.
    pub(crate) fn has_answer(&self) -> bool {
        self.current.as_ref().is_some_and(TurnDraft::has_answer)
    }

    /// Sets the answer of the current turn, if the record states it separately from the replies.
    pub fn set_answer(&mut self, answer: &str) {
        let turn = self.turn();
        turn.has_reply = true;
        turn.end_reply();
        turn.trajectory.final_answer = Some(answer.trim().to_owned()).filter(|answer| !answer.is_empty());
    }

    /// Takes back the last turns, the current one included, because the user rolled the conversation back. Returns
    /// how many of them were already handed over.
    pub fn roll_back_turns(&mut self, count: usize) -> usize {
        let mut left = count;
        if left > 0 && self.current.take().is_some() {
            left -= 1;
        }
        while left > 0
            && let Some(turn) = self.held.pop_back()
        {
            self.held_bytes -= turn.text_bytes;
            left -= 1;
        }
        left
    }

    /// Ends the conversation and hands over its last turns.
    pub fn finish(mut self, sink: &mut dyn ImportSink) {
        self.end_turn(sink);
        // A session is a file that is written on: it can be saved between two replies. Copies go to the last call.
        if let Some(last) = self.held.back_mut().map(|turn| &mut turn.trajectory)
            && last.final_answer.is_none()
            && !last.is_error
            && (self.is_copy || last.steps.last().is_some_and(|step| step.observation.is_some()))
        {
            let detail = match self.is_copy {
                true => "the session that started this one does not record its last reply",
                false => "the session ends with the result of a call; a reply may have followed",
            };
            last.defects.push(ExtractionDefect::new(DefectKind::MissingReply, detail, None));
        }
        while let Some(turn) = self.held.pop_front() {
            self.deliver_turn(turn, sink);
        }
    }

    /// Returns the current turn. Records before the first request belong to one without a query.
    fn turn(&mut self) -> &mut TurnDraft {
        let Self { current, has_lost_record, .. } = self;
        current.get_or_insert_with(|| {
            let mut turn = TurnDraft::default();
            if std::mem::take(has_lost_record) {
                turn.mark_unreadable_record();
            }
            turn
        })
    }

    fn end_turn(&mut self, sink: &mut dyn ImportSink) {
        let Some(mut turn) = self.current.take() else { return };
        turn.end_reply();
        // What is fixed at the time of the turn: a later turn may have another model.
        turn.trajectory.model = turn.main_model().or_else(|| self.model.clone());
        turn.trajectory.system_prompt.clone_from(&self.system_prompt);
        turn.trajectory.tools = Arc::clone(&self.tools);
        self.held_bytes += turn.text_bytes;
        self.held.push_back(turn);
        while self.held.len() > MAX_HELD_TURNS || (self.held_bytes > MAX_HELD_TURN_BYTES && self.held.len() > 1) {
            let Some(oldest) = self.held.pop_front() else { break };
            self.held_bytes -= oldest.text_bytes;
            self.deliver_turn(oldest, sink);
        }
    }

    fn deliver_turn(&mut self, turn: TurnDraft, sink: &mut dyn ImportSink) {
        self.handed_over += 1;
        if self.session_id.is_empty() {
            self.session_id = derive_session_id(&turn.trajectory);
        }
        let TurnDraft { mut trajectory, subagents, usage_by_model, is_cut, .. } = turn;
        trajectory.trajectory_id = match self.handed_over {
            1 => self.session_id.clone(),
            number => format!("{}-{number}", self.session_id),
        };
        trajectory.session_id = Some(self.session_id.clone());
        trajectory.turn_index = Some(self.handed_over);
        trajectory.previous_trajectory_id = self.previous_id.replace(trajectory.trajectory_id.clone());
        trajectory.agent.clone_from(&self.agent);
        trajectory.agent_version.clone_from(&self.agent_version);
        trajectory.project.clone_from(&self.project);
        trajectory.query = trajectory.query.filter(|query| !query.is_empty());
        if usage_by_model.len() > 1 {
            trajectory.model_usage = usage_by_model;
        }
        if is_cut {
            let detail = "the texts of the turn are longer than is kept: later ones were left out";
            trajectory.defects.push(ExtractionDefect::new(DefectKind::TooLarge, detail, None));
        }
        if let Some(reason) = self.missing_context {
            trajectory.defects.push(ExtractionDefect::new(DefectKind::MissingTurn, reason, None));
        }
        let is_missing_answer = |defect: &ExtractionDefect| defect.kind == DefectKind::MissingAnswer;
        let tells_why = trajectory.defects.iter().any(is_missing_answer);
        record_missing_parts(&mut trajectory);
        // The reader has already stated why there is no answer.
        if tells_why && trajectory.defects.last().is_some_and(is_missing_answer) {
            trajectory.defects.pop();
        }
        let (started_as, is_copy) = (self.started_as.clone(), self.is_copy);
        sink.add_turn(ImportedTurn { trajectory, subagents, started_as, is_copy });
    }
}

/// Whether an error of a run says that it was stopped from outside: the user pressed a key.
fn is_abort(reason: &str) -> bool {
    let reason = reason.to_lowercase();
    reason.trim() == "aborted"
        || [
            "messageabortederror",
            "operation was aborted",
            "request was aborted",
            "aborted by user",
            "interrupted by user",
        ]
        .iter()
        .any(|sign| reason.contains(sign))
}

/// Returns an id for a session that records none, from its first turn: the same for the same content (FNV-1a).
fn derive_session_id(first: &Trajectory) -> String {
    let tools = first.steps.iter().flat_map(|step| [Some(step.tool.as_str()), step.observation.as_deref()]);
    let texts = [first.start.as_deref(), first.query.as_deref(), first.final_answer.as_deref()];
    let bytes = texts.into_iter().chain(tools).flatten().flat_map(|text| text.bytes().take(4096).chain([0xff]));
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("session-{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turn_draft::ResultStatus;
    use gradus_core::span::Span;

    #[derive(Default)]
    struct TurnList(Vec<ImportedTurn>);

    impl ImportSink for TurnList {
        fn add_span(&mut self, _span: &Span<'_>) {}

        fn add_turn(&mut self, turn: ImportedTurn) {
            self.0.push(turn);
        }

        fn report_bad_record(&mut self, _reason: &str) {}
    }

    fn call<'a>(id: &'a str, name: &'a str) -> ImportedCall<'a> {
        ImportedCall { id: Some(id), name, arguments: Some(ArgumentsText::Json("{\"path\":\"a\"}".into())) }
    }

    #[test]
    fn replies_become_steps_and_answers() {
        let mut turns = TurnList::default();
        let mut session = SessionBuilder::new("s");
        session.begin_turn("fix the bug", Some("2026-01-01T00:00:00Z"), &mut turns);
        session.begin_reply(None);
        session.add_reasoning("hidden");
        session.add_text("I look first.");
        session.add_call(&call("1", "Read"), None);
        session.add_call(&call("2", "Grep"), None);
        session.set_usage(TokenUsage { prompt: 5, completion: 1, cached_prompt: 0 }, Some("m"), None);
        session.set_usage(TokenUsage { prompt: 5, completion: 7, cached_prompt: 0 }, Some("m"), None);
        let denied = ImportedResult { id: Some("2"), content: "no", status: ResultStatus::Denied, at: None };
        assert!(session.add_result(&denied));
        assert!(session.add_result(&ImportedResult { id: None, content: "text", ..ImportedResult::default() }));
        assert!(!session.add_result(&ImportedResult { id: Some("9"), ..ImportedResult::default() }));
        session.begin_reply(None);
        session.add_reasoning("all well");
        session.add_text("Done.");
        session.finish(&mut turns);
        let trajectory = &turns.0[0].trajectory;
        let steps: Vec<_> = trajectory
            .steps
            .iter()
            .map(|step| (&*step.tool, step.thought.as_deref(), step.observation.as_deref(), step.is_denied))
            .collect();
        let thought = Some("I look first.");
        assert_eq!(steps, [("Read", thought, Some("text"), false), ("Grep", thought, Some("no"), true)]);
        assert!(!trajectory.steps[0].parallel_with_previous && trajectory.steps[1].parallel_with_previous);
        assert_eq!(trajectory.tokens.completion, 7, "the later usage of a reply replaces the earlier one");
        assert_eq!(trajectory.final_answer.as_deref(), Some("Done."));
        assert_eq!(trajectory.final_thought.as_deref(), Some("all well"));
    }

    #[test]
    fn long_turns_are_read_in_linear_time() {
        let mut turns = TurnList::default();
        let mut session = SessionBuilder::new("s");
        session.begin_turn("go", None, &mut turns);
        for _ in 0..100_000 {
            session.begin_reply(None);
            session.add_text("a text without a call");
        }
        for _ in 0..100_000 {
            session.add_call(&ImportedCall { id: None, name: "Read", arguments: None }, None);
        }
        for _ in 0..100_000 {
            assert!(session.add_result(&ImportedResult { content: "x", ..ImportedResult::default() }));
        }
        session.finish(&mut turns);
        assert!(turns.0[0].trajectory.steps.iter().all(|step| step.observation.is_some()));
    }

    #[test]
    fn turns_are_linked_and_can_be_taken_back() {
        let mut turns = TurnList::default();
        let mut session = SessionBuilder::new("s");
        for query in ["one", "two", "three"] {
            session.begin_turn(query, None, &mut turns);
            session.add_text("answer");
        }
        assert_eq!(session.roll_back_turns(2), 0);
        session.begin_turn("four", None, &mut turns);
        session.begin_turn("and five", None, &mut turns);
        session.add_text("answer");
        session.finish(&mut turns);
        let found: Vec<_> = turns
            .0
            .iter()
            .map(|turn| &turn.trajectory)
            .map(|turn| (&*turn.trajectory_id, turn.query.as_deref(), turn.previous_trajectory_id.as_deref()))
            .collect();
        assert_eq!(found, [("s", Some("one"), None), ("s-2", Some("four\nand five"), Some("s"))]);
    }
}
