//! Reads one run into a trajectory: the calls that the model asked for, in order, each with its thought and its result.
//!
//! A call that the model asked for is a [`RequestedCall`]. It comes from the model's reply or, if the reply was not
//! recorded, from the history that a later request repeats. Tool spans and tool messages are joined to it afterwards.

mod history;

use crate::assemble::requested_call::{MAX_CALLS_PER_REPLY, RequestedCall, RequestedCallIds, read_arguments};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value as Json;

use crate::dialect::{NormalizedSpan, OperationKind};
use crate::message::{ChatMessage, MessageRole};
use crate::react::{self, TextStep};
use crate::short_text::{cut_id, cut_name};
use crate::span::Span;
use crate::trajectory::{DefectKind, ExtractionDefect, RUN_FAILED, Trajectory, TrajectoryStep};

use super::budget::LEFT_OUT_DETAIL;
use super::joins::{self, TextReplies};
use super::messages::{drop_redundant_final_thought, remove_unrun_text_calls};
use super::observations;
use super::reply_text::{extract_reasoning, extract_reply_text, join_texts};
use super::request_and_answer;
use super::runs::report_calls_outside_steps;
use super::tools;
use super::tree::{SpanNode, SpanTree};
use super::usage;
use crate::assemble::agent_run::RequestSpans;
use crate::assemble::code_reply::CodeReply;

/// Maximum number of spans of one model call that a step names. Each step of a reply names those of its model call,
/// and any number of spans may have been folded into it.
const MAX_STEP_SPANS: usize = 64;

/// Reads a run. Calls first, in order of time; then results from prompts and tool spans; then the answer.
pub(super) fn extract_trajectory(tree: &SpanTree<'_>, run: &RequestSpans) -> Trajectory {
    let mut reader = StepExtractor {
        tree,
        run,
        requested_calls: Vec::new(),
        ids: RequestedCallIds::default(),
        asked: None,
        defects: run.defects.clone(),
        spoken: None,
        spoken_exactly: false,
        spoken_thought: None,
        speakers: Vec::new(),
        spoken_replies: HashMap::new(),
        code: Vec::new(),
        text_requested_calls: Vec::new(),
    };
    tree.budget.take_exceeded();
    for number in 0..run.calls.len() {
        reader.read_call(number);
    }
    observations::find_prompt_observations(tree, run, &mut reader.requested_calls);
    joins::join_tool_spans(
        tree,
        run,
        &mut reader.requested_calls,
        &reader.code,
        &reader.spoken_replies,
        &mut reader.defects,
    );
    observations::split_joined_results(tree, &mut reader.requested_calls);
    reader.reclassify_thoughts();
    reader.remove_unrun_action();
    reader.finish()
}

/// State while the calls of one run are read in order.
struct StepExtractor<'t, 's> {
    tree: &'t SpanTree<'s>,
    run: &'t RequestSpans,
    requested_calls: Vec<RequestedCall>,
    ids: RequestedCallIds,
    /// The request of the user: the index of the first call that shows it, and its position there.
    asked: Option<(usize, usize)>,
    defects: Vec<ExtractionDefect>,
    /// Text of the last reply without tool calls: a candidate for the answer.
    spoken: Option<String>,
    /// Whether that text is the whole reply.
    spoken_exactly: bool,
    /// What the model thought before that text.
    spoken_thought: Option<String>,
    /// The calls whose replies have no tool calls.
    speakers: Vec<usize>,
    /// Their text, where it is plain words.
    spoken_replies: TextReplies,
    /// Replies that act by code.
    code: Vec<CodeReply>,
    /// The calls that were written as text, in order.
    text_requested_calls: Vec<usize>,
}

impl StepExtractor<'_, '_> {
    /// Reads one model call: first what its request shows of the past, then its reply.
    fn read_call(&mut self, number: usize) {
        let start = self.turn_start(number);
        let input = &self.tree.nodes[self.run.calls[number]].facts.input[start..];
        self.read_history(number, input);
        observations::read_observations(input, &mut self.requested_calls, &self.ids, &self.text_requested_calls);
        self.read_reply(number);
    }

    /// Where the messages of this turn begin in the input of a call: behind the request of the user.
    fn turn_start(&mut self, number: usize) -> usize {
        let (tree, run) = (self.tree, self.run);
        let input = |number: usize| &tree.nodes[run.calls[number]].facts.input;
        let this = input(number);
        if self.asked.is_none() {
            self.asked = request_and_answer::find_last_user_message(this).map(|at| (number, at));
        }
        let Some((first, at)) = self.asked else { return 0 };
        let asked = &input(first)[at];
        let same = |at: &usize| {
            this.get(*at).is_some_and(|message| message.role == MessageRole::User && message.parts == asked.parts)
        };
        if same(&at) {
            return at + 1;
        }
        let place = (0..this.len()).rev().find(same).or_else(|| request_and_answer::find_last_user_message(this));
        place.map_or(0, |at| at + 1)
    }

    /// Reads the reply of a model call: an answer through a finishing tool, structured calls, or text.
    fn read_reply(&mut self, number: usize) {
        let node = &self.tree.nodes[self.run.calls[number]];
        let output = &node.facts.output;
        let said = extract_reply_text(output);
        // A span that several calls wrote to still has the calls of earlier replies. Its own history shows that they
        // are old.
        let is_stale = |id: &str| {
            self.ids.last(id).is_some_and(|requested_call| self.requested_calls[requested_call].call == Some(number))
        };
        let fresh: Vec<_> = output
            .iter()
            .flat_map(ChatMessage::tool_calls)
            .filter(|call| call.id.as_deref().is_none_or(|id| !is_stale(id)))
            .collect();
        // A single call of a finishing tool is the answer, not a step.
        if let [only] = fresh.as_slice()
            && tools::is_final_answer(&only.name)
        {
            self.spoken = tools::parse_answer_argument(only.arguments.as_ref()).or(self.spoken.take());
            self.spoken_exactly = true;
            self.spoken_thought = said;
            self.speakers.push(number);
            return;
        }
        if !fresh.is_empty() {
            let calls = fresh.iter().filter(|call| !tools::is_final_answer(&call.name));
            for (asked, call) in calls.enumerate() {
                if asked == MAX_CALLS_PER_REPLY {
                    let detail =
                        format!("{} calls in one reply; the first {MAX_CALLS_PER_REPLY} are read", fresh.len());
                    self.add_defect_at(number, DefectKind::TooManyCalls, &detail);
                    break;
                }
                let thought = match asked {
                    0 => said.clone(),
                    _ => said.as_deref().and_then(|said| self.tree.budget.share_text(said)),
                };
                self.requested_call(number, thought, call, asked > 0);
            }
            return;
        }
        let text = join_texts(output);
        if text.trim().is_empty() {
            if node.facts.has_content() || node.span.is_error() {
                self.speakers.push(number);
                let is_last = number + 1 == self.run.calls.len();
                if is_last && output.is_empty() && !node.span.is_error() {
                    self.add_defect_at(
                        number,
                        DefectKind::MissingReply,
                        "the reply of the last model call is not recorded",
                    );
                }
            } else {
                self.add_defect_at(number, DefectKind::ModelCallWithoutContent, "no messages recorded");
            }
            return;
        }
        self.read_unstructured_reply(number, &text, said);
    }

    /// Reads a reply without structured calls: code, ReAct text, or an answer.
    fn read_unstructured_reply(&mut self, number: usize, text: &str, said: Option<String>) {
        if let Some((thought, code)) = react::find_code_block(text) {
            let thought = Some(thought.to_owned()).filter(|thought| !thought.is_empty());
            self.code.push(CodeReply { call: number, thought, code: code.to_owned() });
            return;
        }
        let transcript = react::read_react_transcript(text);
        for (kind, detail) in &transcript.defects {
            self.add_defect_at(number, (*kind).into(), detail);
        }
        let mut steps = transcript.steps.into_iter();
        let Some(first) = steps.next() else {
            self.spoken_exactly = !transcript.is_react;
            if !transcript.is_react {
                self.spoken_replies.insert(number, said.clone().unwrap_or_else(|| text.trim().to_owned()));
            }
            let reasoning = || extract_reasoning(&self.tree.nodes[self.run.calls[number]].facts.output);
            self.spoken_thought = match transcript.answer {
                Some(_) => transcript.last_thought.map(Cow::into_owned).or_else(reasoning),
                None => reasoning(),
            };
            match transcript.answer {
                Some(answer) => self.spoken = Some(answer.into_owned()),
                None if transcript.is_react => {
                    self.add_defect_at(
                        number,
                        DefectKind::MissingAction,
                        "a ReAct reply with neither an action nor an answer",
                    );
                    self.spoken = Some(text.trim().to_owned());
                }
                None => self.spoken = said.or(Some(text.trim().to_owned())),
            }
            self.speakers.push(number);
            return;
        };
        let written = first.observation.is_some();
        let reply: Arc<str> = text.trim().into();
        self.add_text_call(number, first, &reply);
        for (asked, step) in steps.by_ref().take_while(|step| step.parallel).enumerate() {
            if asked + 1 == MAX_CALLS_PER_REPLY {
                let detail = format!("more than {MAX_CALLS_PER_REPLY} calls in one reply; the first ones are read");
                self.add_defect_at(number, DefectKind::TooManyCalls, &detail);
                break;
            }
            self.add_text_call(number, step, &reply);
        }
        if written {
            // The framework acts on the first action. What the model wrote behind it did not happen.
            self.add_defect_at(
                number,
                DefectKind::SelfWrittenObservation,
                "the reply goes on behind its action with an observation of its own",
            );
        }
    }

    /// Removes replies that were followed by a tool run, or asked for a tool, from the candidates for the answer:
    /// they were thoughts.
    fn reclassify_thoughts(&mut self) {
        let spoken = &self.spoken_replies;
        let mut thoughts: HashSet<usize> = self
            .requested_calls
            .iter()
            // A reply came after the calls that its own request shows.
            .filter(|requested_call| !requested_call.from_history)
            .filter_map(|requested_call| requested_call.call)
            .filter(|call| spoken.contains_key(call))
            .collect();
        let last = self.speakers.last().copied().filter(|last| spoken.contains_key(last) && !thoughts.contains(last));
        if let Some(last) = last.filter(|last| self.tree.nodes[self.run.calls[*last]].facts.asks_for_tools) {
            self.add_defect_at(
                last,
                DefectKind::MissingToolName,
                "the reply asks for tools, and its calls are not recorded",
            );
            thoughts.insert(last);
        }
        if self.speakers.last().is_some_and(|last| thoughts.contains(last)) {
            (self.spoken, self.spoken_thought) = (None, None);
        }
        self.speakers.retain(|speaker| !thoughts.contains(speaker));
    }

    /// An action that the last reply wrote as text, and that nothing followed, never ran if the agent calls its tools
    /// natively. Its text is the answer.
    fn remove_unrun_action(&mut self) {
        let Some(last) = self.requested_calls.last() else { return };
        let is_last_reply = last.reply.is_some() && last.call == self.run.calls.len().checked_sub(1);
        let is_native = |call: &RequestedCall| call.reply.is_none() && call.call.is_some();
        if !is_last_reply || !self.requested_calls.iter().any(is_native) {
            return;
        }
        let ran = |call: &RequestedCall| call.reply.is_some() && (call.seen.is_some() || !call.runs.is_empty());
        if self.requested_calls.iter().any(ran) {
            return;
        }
        let number = self.run.calls.len() - 1;
        if let Some(reply) = remove_unrun_text_calls(&mut self.requested_calls) {
            self.add_defect_at(number, DefectKind::ActionNeverRan, &reply);
            (self.spoken, self.spoken_thought) = (Some(reply.as_ref().to_owned()), None);
            self.spoken_exactly = true;
            self.speakers.push(number);
        }
    }

    /// Adds a structured call.
    fn requested_call(
        &mut self,
        number: usize,
        thought: Option<String>,
        call: &crate::message::ToolCall<'_>,
        parallel: bool,
    ) {
        let (arguments, raw, malformed) = read_arguments(call.arguments.as_ref());
        if call.name.is_empty() {
            // Without a tool there is no step.
            self.add_defect_at(number, DefectKind::MissingToolName, raw.as_deref().unwrap_or_default());
            return;
        }
        if malformed {
            self.add_defect_at(number, DefectKind::MalformedArguments, raw.as_deref().unwrap_or_default());
        }
        if let Some(id) = call.id.as_deref() {
            self.ids.add(id, self.requested_calls.len());
        }
        let arguments = self.tree.budget.keep_arguments(arguments);
        self.requested_calls.push(RequestedCall {
            thought,
            tool: call.name.to_string(),
            id: call.id.as_deref().map(str::to_owned),
            arguments,
            raw,
            parallel,
            call: Some(number),
            ..RequestedCall::default()
        });
    }

    /// Adds a call that was written as ReAct text.
    fn add_text_call(&mut self, number: usize, step: TextStep<'_>, reply: &Arc<str>) {
        // `Action Input: null` means that there are no arguments.
        let input = if step.input.json == Some(Json::Null) { Default::default() } else { step.input };
        let thought = match step.parallel {
            true => step.thought.and_then(|thought| self.tree.budget.share_text(&thought)),
            false => step.thought.map(Cow::into_owned),
        };
        self.text_requested_calls.push(self.requested_calls.len());
        self.requested_calls.push(RequestedCall {
            thought,
            tool: step.tool.into_owned(),
            arguments: self.tree.budget.keep_arguments(input.json),
            raw: Some(input.raw.into_owned()).filter(|raw| !raw.is_empty()),
            parallel: step.parallel,
            call: Some(number),
            reply: Some(Arc::clone(reply)),
            ..RequestedCall::default()
        });
    }

    /// Adds a defect that refers to the span of a model call.
    fn add_defect_at(&mut self, number: usize, kind: DefectKind, detail: &str) {
        let node = &self.tree.nodes[self.run.calls[number]];
        self.defects.push(ExtractionDefect::new(kind, shorten_detail(detail), Some(node.span.span_id)));
    }

    /// Builds the trajectory. Facts that several spans state are taken from the outermost one.
    fn finish(mut self) -> Trajectory {
        let (tree, run) = (self.tree, self.run);
        let nodes = || run.calls.iter().chain(&run.tools).chain(&run.frames).map(|at| &tree.nodes[*at]);
        let mut trajectory = Trajectory {
            trace_ids: run.traces.iter().map(ToString::to_string).collect(),
            query: request_and_answer::find_query(tree, run),
            ..Trajectory::default()
        };
        let fact = |get: for<'f> fn(&'f NormalizedSpan<'_>) -> Option<&'f str>| {
            run.frames.iter().chain(&run.calls).chain(&run.tools).find_map(|at| get(&tree.nodes[*at].facts))
        };
        // All trajectories of a trace may take these from the same resource, so their length is bounded.
        let name = |name: &str| cut_name(name).into_owned();
        trajectory.session_id = fact(|facts| facts.session.as_deref()).map(|session| cut_id(session).into_owned());
        trajectory.agent = fact(|facts| facts.agent.as_deref()).map(name);
        trajectory.agent_version = fact(|facts| facts.agent_version.as_deref())
            .or_else(|| nodes().find_map(|node| node.span.resource.version()))
            .map(name);
        trajectory.model = run.calls.iter().find_map(|at| tree.nodes[*at].facts.model.as_deref()).map(name);
        trajectory.project = nodes().find_map(|node| node.span.resource.project()).map(name);
        trajectory.model_usage = usage::count_model_usage(run.calls.iter().map(|at| &tree.nodes[*at].facts));
        for at in &run.calls {
            let facts = &tree.nodes[*at].facts;
            trajectory.tokens += usage::reported_tokens(facts);
            if let Some(cost) = facts.cost_usd {
                *trajectory.cost_usd.get_or_insert_default() += cost;
            }
        }
        let root = run.frames.first().or(run.calls.first()).or(run.tools.first()).map(|at| &tree.nodes[*at]);
        trajectory.root_span_id = root.map(|root| root.span.span_id.to_string());
        trajectory.start = nodes().map(|node| node.span.start_ns).min().and_then(format_timestamp);
        trajectory.end = nodes().map(|node| node.span.end_ns).max().and_then(format_timestamp);
        if let Some((number, at)) = self.asked {
            let facts = &tree.nodes[run.calls[number]].facts;
            // A service that keeps the conversation is sent the new request only.
            let input = if facts.previous_response_id.is_some() { &[][..] } else { &facts.input[..] };
            super::repeated_turns::set_repeated_turns(input, at, run.below.is_some(), &tree.budget, &mut trajectory);
            self.defects.append(&mut trajectory.defects);
        }
        self.set_final_answer(&mut trajectory);
        self.build_steps(&mut trajectory);
        // Without its parent, a failed span may be any part of a run that went on.
        let is_part = |root: &SpanNode<'_>| root.is_orphan && trajectory.final_answer.is_some();
        let failed = root.filter(|root| root.span.is_error() && !is_part(root));
        let failure = failed.map(|root| describe_failure(root.span));
        self.record_defects(&mut trajectory, failure.as_deref());
        trajectory
    }

    /// Chooses the answer: from a finishing tool, else from the last reply behind all calls, checked against the
    /// frames.
    fn set_final_answer(&mut self, trajectory: &mut Trajectory) {
        // Only text behind the last call is the answer: the index of the last model call that asked for a tool decides.
        let last_requested_call = self.requested_calls.iter().filter_map(|requested_call| requested_call.call).max();
        let answered = self
            .speakers
            .last()
            .is_some_and(|speaker| last_requested_call.is_none_or(|requested_call| *speaker >= requested_call))
            && !self.failed_without_answer();
        let spoken = self.spoken.as_deref().filter(|_| answered);
        let finished = tools::final_answer(self.tree, self.run);
        trajectory.final_answer = match finished {
            Some(answer) => Some(answer),
            None => request_and_answer::extract_answer(self.tree, self.run, spoken, self.spoken_exactly),
        };
        // A code agent answers inside of its last piece of code.
        let code_answer = self
            .code
            .last()
            .map(|reply| reply.call)
            .filter(|call| last_requested_call.is_none_or(|requested_call| *call > requested_call));
        trajectory.final_thought = match code_answer {
            Some(_) => self.code.last().and_then(|reply| reply.thought.clone()),
            None => self.spoken_thought.take().filter(|_| answered),
        };
        drop_redundant_final_thought(trajectory);
        let speaker = if answered { self.speakers.last().copied() } else { None };
        for number in [speaker, code_answer].into_iter().flatten() {
            let ids = self.tree.nodes[self.run.calls[number]].span_ids().map(|id| id.to_string());
            trajectory.answer_span_ids.extend(ids);
        }
        trajectory.answer_span_ids.extend(tools::final_answer_spans(self.tree, self.run));
        self.account_for_calls(trajectory);
    }

    /// Whether the agent ended in an error and recorded no answer. Then the last text of its model is not the answer.
    fn failed_without_answer(&self) -> bool {
        self.run.frames.first().map(|at| &self.tree.nodes[*at]).is_some_and(|root| {
            let facts = &root.facts;
            let has_output = facts.answer.is_some() || !facts.output.is_empty() || facts.output_text.is_some();
            root.span.is_error() && facts.kind == OperationKind::Agent && !has_output
        })
    }

    /// Makes sure that every model call is in a step, gives the answer, or is named in a defect.
    fn account_for_calls(&mut self, trajectory: &Trajectory) {
        let asking: HashSet<usize> =
            self.requested_calls.iter().filter_map(|requested_call| requested_call.call).collect();
        let named: HashSet<&str> = self.defects.iter().filter_map(|defect| defect.span_id.as_deref()).collect();
        let answering: HashSet<&str> = trajectory.answer_span_ids.iter().map(String::as_str).collect();
        let mut silent: Vec<ExtractionDefect> = Vec::new();
        let calls = self.run.calls.iter().enumerate().filter(|(number, _)| !asking.contains(number));
        for (_, at) in calls {
            let why = match self.tree.nodes[*at].span.is_error() {
                true => "the call failed",
                false => "a reply that asks for no tool and is not the answer",
            };
            silent.extend(report_calls_outside_steps(self.tree, *at, why).into_iter().filter(|defect| {
                let span = defect.span_id.as_deref().unwrap_or_default();
                !named.contains(span) && !answering.contains(span)
            }));
        }
        self.defects.extend(silent);
    }

    /// Turns the calls into steps. Tokens of a model call are counted in the first step of its reply only.
    fn build_steps(&mut self, trajectory: &mut Trajectory) {
        let mut told: HashSet<usize> = HashSet::new();
        for (index, requested_call) in std::mem::take(&mut self.requested_calls).into_iter().enumerate() {
            let call = requested_call.call.map(|number| &self.tree.nodes[self.run.calls[number]]);
            let runs: Vec<_> = requested_call.runs.iter().map(|at| &self.tree.nodes[*at]).collect();
            let last = runs.last();
            let (observation, is_error) =
                observations::choose_observation(&requested_call, last.map(|node| &node.facts.tool));
            let from_span = last.and_then(|node| node.facts.tool.arguments.as_ref());
            let (mut arguments, mut raw) = (requested_call.arguments, requested_call.raw);
            // The reply may have been recorded without arguments. Then those of the tool's span are used.
            if raw.is_none()
                && arguments.is_none()
                && let Some(recorded) = from_span
            {
                (arguments, raw, _) = read_arguments(Some(recorded));
                arguments = self.tree.budget.keep_arguments(arguments);
            }
            // Counted once per model call: the other steps of the same reply have none.
            let tokens = match requested_call.call {
                Some(number) if told.insert(number) => call.map(|node| usage::reported_tokens(&node.facts)),
                _ => None,
            };
            let spans = call.into_iter().chain(runs.iter().copied());
            let start = spans.clone().map(|node| node.span.start_ns).min();
            let end = spans.clone().map(|node| node.span.end_ns).max();
            let trace = spans.clone().next().map(|node| node.span.trace_id.to_string());
            trajectory.steps.push(TrajectoryStep {
                index: index as u32 + 1,
                thought: requested_call.thought.filter(|thought| !thought.trim().is_empty()),
                tool: requested_call.tool,
                tool_call_id: requested_call
                    .id
                    .or_else(|| last.and_then(|node| node.facts.tool.call_id.as_deref().map(str::to_owned))),
                arguments,
                arguments_raw: raw,
                observation,
                is_error,
                is_denied: false,
                parallel_with_previous: requested_call.parallel,
                after_compaction: false,
                agent: call.or(last.copied()).and_then(|node| self.find_step_agent(node)),
                span_ids: spans
                    .flat_map(|node| node.span_ids().take(MAX_STEP_SPANS))
                    .map(|id| id.to_string())
                    .collect(),
                trace_id: trace.filter(|_| trajectory.trace_ids.len() > 1),
                start: start.and_then(format_timestamp),
                end: end.and_then(format_timestamp),
                tokens: tokens.unwrap_or_default(),
            });
        }
    }

    /// The agent of a step: stated by its own span or by the nearest span around it, up to 64 levels up.
    fn find_step_agent(&self, node: &SpanNode<'_>) -> Option<String> {
        let own = node.facts.agent.as_deref();
        let around = std::iter::successors(node.parent, |at| self.tree.nodes[*at].parent);
        let agent = own.or_else(|| around.take(64).find_map(|at| self.tree.nodes[at].facts.agent.as_deref()));
        // Copied into every step, so its length is bounded.
        agent.map(|agent| cut_name(agent).into_owned())
    }

    /// Adds defects for everything that is missing, and for spans with a missing parent or in several versions.
    fn record_defects(mut self, trajectory: &mut Trajectory, failure: Option<&str>) {
        let span = |step: &TrajectoryStep| step.span_ids.first().cloned();
        for step in &trajectory.steps {
            let mut miss = |kind, what: &str| {
                let detail = format!("step {} ({}) has no {what}", step.index, cut_name(&step.tool));
                self.defects.push(ExtractionDefect { kind, detail, span_id: span(step) });
            };
            if step.thought.is_none() {
                miss(DefectKind::MissingThought, "thought");
            }
            if step.observation.is_none() {
                miss(DefectKind::MissingObservation, "observation");
            }
        }
        let root = trajectory.root_span_id.clone();
        let mut miss = |kind, detail: &str| {
            self.defects.push(ExtractionDefect { kind, detail: detail.to_owned(), span_id: root.clone() })
        };
        if trajectory.query.is_none() {
            miss(DefectKind::MissingQuery, "the request is not in the spans");
        }
        if let Some(failure) = failure {
            trajectory.is_error = true;
            miss(DefectKind::RunFailed, failure);
        }
        if self.tree.budget.take_exceeded() {
            miss(DefectKind::TooLarge, LEFT_OUT_DETAIL);
        }
        if trajectory.final_answer.is_none() {
            miss(DefectKind::MissingAnswer, "there is no final answer");
        }
        for at in self.run.calls.iter().chain(&self.run.tools).chain(&self.run.frames) {
            let node = &self.tree.nodes[*at];
            let id = Some(node.span.span_id);
            if node.is_orphan {
                self.defects.push(ExtractionDefect::new(DefectKind::OrphanSpan, "its parent span is not there", id));
            }
            if node.is_conflicting {
                let detail = "came twice with different content; the later one counts";
                self.defects.push(ExtractionDefect::new(DefectKind::ConflictingSpan, detail, id));
            }
        }
        trajectory.defects = self.defects;
    }
}

/// RFC 3339 in UTC; `None` for 0, which means that the time is not known.
pub(super) fn format_timestamp(ns: u64) -> Option<String> {
    if ns == 0 {
        return None;
    }
    let time = jiff::Timestamp::from_nanosecond(i128::from(ns)).ok()?;
    // Always nine digits, so that the order of texts is the order of times.
    Some(format!("{time:.9}"))
}

/// How the span of a run failed: with the message of its status, which usually begins with the kind of the error, else
/// with that of its exception.
fn describe_failure(root: &Span<'_>) -> String {
    let exception = root.exception_message().unwrap_or_default();
    let message = [&*root.status.message, exception].into_iter().map(str::trim).find(|message| !message.is_empty());
    match message {
        Some(message) => format!("{RUN_FAILED}: {}", shorten_detail(message)),
        None => RUN_FAILED.to_owned(),
    }
}

/// A detail, cut to the length that defects quote.
fn shorten_detail(detail: &str) -> String {
    const MAX_DETAIL_CHARS: usize = 160;
    match detail.char_indices().nth(MAX_DETAIL_CHARS) {
        Some((end, _)) => format!("{}…", &detail[..end]),
        None => detail.to_owned(),
    }
}
