//! All formats. The first that matches reads the record.

use serde_json::{Map, Value as Json};

use crate::exports::{
    agentdojo, atif, autogen, braintrust, harbor, inspect, jaeger, langfuse, langsmith, mini_swe_agent, mlflow,
    openai_agents, openhands, phoenix, responses, swe_agent, tau_bench, unreadable, zipkin,
};
use crate::format_kinds::{DocumentFormat, SessionFormat, UnreadableFormat};
use crate::sessions::{
    claude_code, claude_stream, codebuddy, codex_document, codex_exec, codex_lines, codex_rollout, copilot_cli,
    copilot_history, cursor_stream, cursor_transcript, gemini_cli, gemini_stream, goose, kimi_wire, opencode,
    pi_session, qwen_code, unread_records,
};

/// All formats of sessions. The first that matches reads the file.
pub const SESSION_FORMATS: &[SessionFormat] = &[
    SessionFormat::written_by_coding_agent(
        "Claude Code session",
        claude_code::is_claude_code_session,
        claude_code::open_claude_code_session,
    ),
    SessionFormat::written_by_coding_agent(
        "Claude Code stream JSON",
        claude_stream::is_claude_stream,
        claude_stream::open_claude_stream,
    ),
    SessionFormat::written_by_coding_agent(
        "Codex rollout",
        codex_lines::is_codex_rollout,
        codex_rollout::open_codex_rollout,
    ),
    SessionFormat::written_by_coding_agent("codex exec --json", codex_exec::is_codex_exec, codex_exec::open_codex_exec),
    SessionFormat::written_by_coding_agent(
        "Gemini CLI session",
        gemini_cli::is_gemini_session,
        gemini_cli::open_gemini_session,
    ),
    SessionFormat::written_by_coding_agent(
        "Gemini CLI stream JSON",
        gemini_stream::is_gemini_stream,
        gemini_stream::open_gemini_stream,
    ),
    SessionFormat::written_by_coding_agent(
        "Cursor stream JSON",
        cursor_stream::is_cursor_stream,
        cursor_stream::open_cursor_stream,
    ),
    SessionFormat::written_by_coding_agent(
        "OpenCode JSON output",
        opencode::is_opencode_stream,
        opencode::open_opencode_stream,
    ),
    SessionFormat::written_by_coding_agent(
        "Copilot CLI session",
        copilot_cli::is_copilot_session,
        copilot_cli::open_copilot_session,
    ),
    SessionFormat::written_by_coding_agent(
        "Qwen Code session",
        qwen_code::is_qwen_session,
        qwen_code::open_qwen_session,
    ),
    SessionFormat::written_by_coding_agent("pi session", pi_session::is_pi_session, pi_session::open_pi_session),
    SessionFormat::written_by_coding_agent(
        "Kimi Code session",
        kimi_wire::is_kimi_session,
        kimi_wire::open_kimi_session,
    ),
    SessionFormat::written_by_coding_agent(
        "CodeBuddy session",
        codebuddy::is_codebuddy_session,
        codebuddy::open_codebuddy_session,
    ),
    SessionFormat::written_by_coding_agent("goose session", goose::is_goose_session, goose::open_goose_session),
    SessionFormat::written_by_coding_agent(
        "Cursor transcript",
        cursor_transcript::is_cursor_transcript,
        cursor_transcript::open_cursor_transcript,
    ),
    SessionFormat::written_by_harness(
        "mini-SWE-agent messages",
        mini_swe_agent::is_message_list,
        mini_swe_agent::MessageListReader::open,
    ),
    SessionFormat::written_by_harness("OpenHands events", openhands::is_event_list, openhands::EventListReader::open),
    SessionFormat::written_by_harness(
        "AutoGen AgentChat messages",
        autogen::is_agent_chat,
        autogen::AgentChatListReader::open,
    ),
    SessionFormat::written_by_harness(
        "AutoGen chat history",
        autogen::is_chat_history,
        autogen::ChatHistoryListReader::open,
    ),
    SessionFormat::written_by_harness("OpenAI Agents trace", openai_agents::matches_items, openai_agents::open_reader),
    SessionFormat::written_by_harness("OpenAI Responses items", responses::matches_items, responses::open_reader),
];

/// All formats of documents. The first that matches reads the object.
pub const DOCUMENT_FORMATS: &[DocumentFormat] = &[
    DocumentFormat {
        name: "Gemini CLI session",
        matches: gemini_cli::is_gemini_document,
        read: gemini_cli::read_gemini_document,
    },
    DocumentFormat {
        name: "Codex rollout",
        matches: codex_document::is_codex_document,
        read: codex_document::read_codex_document,
    },
    DocumentFormat {
        name: "Copilot CLI session",
        matches: copilot_history::is_copilot_document,
        read: copilot_history::read_copilot_document,
    },
    DocumentFormat {
        name: "OpenCode export",
        matches: opencode::is_opencode_export,
        read: opencode::read_opencode_export,
    },
    DocumentFormat { name: "ATIF trajectory", matches: atif::is_atif, read: atif::read_atif },
    DocumentFormat { name: "SWE-agent trajectory", matches: swe_agent::is_swe_agent, read: swe_agent::read_swe_agent },
    DocumentFormat {
        name: "mini-SWE-agent trajectory",
        matches: mini_swe_agent::is_mini_swe_agent,
        read: mini_swe_agent::read_mini_swe_agent,
    },
    DocumentFormat {
        name: "OpenHands benchmark output",
        matches: openhands::is_benchmark_line,
        read: openhands::read_benchmark_line,
    },
    DocumentFormat {
        name: "OpenHands trajectory",
        matches: openhands::is_trajectory_document,
        read: openhands::read_trajectory_document,
    },
    DocumentFormat { name: "tau-bench result", matches: tau_bench::is_tau_result, read: tau_bench::read_tau_result },
    DocumentFormat {
        name: "tau2-bench results",
        matches: tau_bench::is_tau2_results,
        read: tau_bench::read_tau2_results,
    },
    DocumentFormat {
        name: "tau2-bench simulation",
        matches: tau_bench::is_tau2_simulation,
        read: tau_bench::read_tau2_simulation,
    },
    DocumentFormat { name: "AgentDojo log", matches: agentdojo::is_agentdojo, read: agentdojo::read_agentdojo },
    DocumentFormat { name: "AutoGen task result", matches: autogen::is_task_result, read: autogen::read_task_result },
    DocumentFormat { name: "AutoGen chat", matches: autogen::is_chat_document, read: autogen::read_chat_document },
    DocumentFormat { name: "Inspect log", matches: inspect::is_inspect_log, read: inspect::read_inspect_log },
    DocumentFormat { name: "LangSmith run", matches: langsmith::matches_run, read: langsmith::read_run },
    DocumentFormat { name: "LangSmith runs", matches: langsmith::matches_run_list, read: langsmith::read_run_list },
    DocumentFormat { name: "Langfuse trace", matches: langfuse::matches_trace, read: langfuse::read_trace },
    DocumentFormat { name: "Langfuse traces", matches: langfuse::matches_dump, read: langfuse::read_dump },
    DocumentFormat {
        name: "Langfuse observation",
        matches: langfuse::matches_observation,
        read: langfuse::read_observation,
    },
    DocumentFormat { name: "MLflow trace", matches: mlflow::matches_trace, read: mlflow::read_trace },
    DocumentFormat { name: "MLflow trace data", matches: mlflow::matches_trace_data, read: mlflow::read_trace_data },
    DocumentFormat { name: "MLflow span", matches: mlflow::matches_span, read: mlflow::read_span },
    DocumentFormat { name: "Braintrust row", matches: braintrust::matches_row, read: braintrust::read_row },
    DocumentFormat { name: "Braintrust rows", matches: braintrust::matches_row_list, read: braintrust::read_row_list },
    DocumentFormat {
        name: "OpenAI Agents trace",
        matches: openai_agents::matches_item_list,
        read: openai_agents::read_item_list,
    },
    DocumentFormat { name: "OpenAI Agents span", matches: openai_agents::matches_item, read: openai_agents::read_item },
    DocumentFormat { name: "OpenAI response", matches: responses::matches_response, read: responses::read_response },
    DocumentFormat { name: "Jaeger trace", matches: jaeger::matches_trace, read: jaeger::read_trace },
    DocumentFormat { name: "Jaeger traces", matches: jaeger::matches_trace_list, read: jaeger::read_trace_list },
    DocumentFormat { name: "Jaeger span", matches: jaeger::matches_span, read: jaeger::read_span },
    DocumentFormat { name: "Zipkin span", matches: zipkin::matches_span, read: zipkin::read_span },
    DocumentFormat { name: "Phoenix data frame row", matches: phoenix::matches_row, read: phoenix::read_row },
    DocumentFormat { name: "Phoenix data frame", matches: phoenix::matches_frame, read: phoenix::read_frame },
    DocumentFormat { name: "Inspect sample", matches: inspect::is_inspect_sample, read: inspect::read_inspect_sample },
];

/// Whether an object looks like a span of another spelling, and is read by a [`DocumentFormat`].
pub fn is_foreign_span(object: &Map<String, Json>) -> bool {
    braintrust::matches_row(object) || mlflow::matches_span(object)
}

/// Whether an object is a span of MLflow, whose meaning depends on the other spans of its list.
pub fn is_mlflow_span(object: &Map<String, Json>) -> bool {
    mlflow::matches_span(object)
}

/// Whether a document is a session that a coding agent wrote on the machine of its user.
pub fn is_personal_document(object: &Map<String, Json>) -> bool {
    gemini_cli::is_gemini_document(object)
        || codex_document::is_codex_document(object)
        || copilot_history::is_copilot_document(object)
        || opencode::is_opencode_export(object)
}

/// What is named instead of being read.
pub const UNREADABLE_FORMATS: &[UnreadableFormat] = &[
    UnreadableFormat {
        name: "Harbor trial result",
        matches: harbor::is_trial_result,
        hint: "it holds the reward, not the run: read `agent/trajectory.json` of the same folder",
    },
    UnreadableFormat {
        name: "Harbor job result",
        matches: harbor::is_job_result,
        hint: "it holds the sums of a job: read `agent/trajectory.json` of its trials",
    },
    UnreadableFormat {
        name: "Harbor configuration",
        matches: harbor::is_run_config,
        hint: "it holds the settings of a run: read `agent/trajectory.json` of the same folder",
    },
    UnreadableFormat {
        name: "tau2-bench voice simulation",
        matches: tau_bench::is_tau2_voice,
        hint: "it is recorded as ticks of audio: run the task in text mode",
    },
    UnreadableFormat {
        name: "tau2-bench run folder",
        matches: tau_bench::is_tau2_index,
        hint: "it has no simulations in it: read the files of its folder `simulations`",
    },
    UnreadableFormat {
        name: "AutoGen saved state",
        matches: autogen::is_saved_state,
        hint: "it is what a team resumes from: write the result of `run` as JSON",
    },
    UnreadableFormat {
        name: "AutoGen event log",
        matches: autogen::is_event_log_record,
        hint: "its lines are not tied to a conversation: write the result of `run` as JSON",
    },
    UnreadableFormat {
        name: "OpenHands event file",
        matches: openhands::is_single_event,
        hint: "it holds one event of a conversation: export the trajectory as one file",
    },
    UnreadableFormat {
        name: "LangSmith dataset",
        matches: unreadable::is_langsmith_dataset,
        hint: "a dataset holds no runs; export the runs: `client.list_runs(project_name=...)`, one JSON object a line",
    },
    UnreadableFormat {
        name: "LangSmith example",
        matches: unreadable::is_langsmith_example,
        hint: "an example of a dataset is no run; export the runs: `client.list_runs(project_name=...)`, one JSON object a line",
    },
    UnreadableFormat {
        name: "LangSmith feedback",
        matches: unreadable::is_langsmith_feedback,
        hint: "feedback alone holds no runs; export the runs: `client.list_runs(project_name=...)`, one JSON object a line; their `feedback_stats` are read",
    },
    UnreadableFormat {
        name: "LangSmith project",
        matches: unreadable::is_langsmith_project,
        hint: "the statistics of a project hold no runs; export the runs: `client.list_runs(project_name=...)`, one JSON object a line",
    },
    UnreadableFormat {
        name: "LangChain prompt",
        matches: unreadable::is_langchain_prompt,
        hint: "a prompt holds no runs; export the runs: `client.list_runs(project_name=...)`, one JSON object a line",
    },
    UnreadableFormat {
        name: "Langfuse trace without observations",
        matches: unreadable::is_langfuse_trace_list,
        hint: "lists of traces leave out what the agent did; download the trace as JSON, or export its observations with input and output",
    },
    UnreadableFormat {
        name: "Langfuse score",
        matches: unreadable::is_langfuse_score,
        hint: "a score alone holds no run; download the trace as JSON, or export its observations with input and output; their scores are read",
    },
    UnreadableFormat {
        name: "Langfuse prompt",
        matches: unreadable::is_langfuse_prompt,
        hint: "a prompt holds no runs; download the trace as JSON, or export its observations with input and output",
    },
    UnreadableFormat {
        name: "Langfuse dataset",
        matches: unreadable::is_langfuse_dataset,
        hint: "a dataset holds no runs; download the trace as JSON, or export its observations with input and output",
    },
    UnreadableFormat {
        name: "Langfuse session",
        matches: unreadable::is_langfuse_session,
        hint: "a session lists no steps; download the trace as JSON, or export its observations with input and output",
    },
    UnreadableFormat {
        name: "MLflow run",
        matches: unreadable::is_mlflow_run,
        hint: "a run of an experiment holds metrics, not steps; export the traces: `mlflow.get_trace(id).to_json()`",
    },
    UnreadableFormat {
        name: "MLflow experiment",
        matches: unreadable::is_mlflow_experiment,
        hint: "an experiment holds no traces; export the traces: `mlflow.get_trace(id).to_json()`",
    },
    UnreadableFormat {
        name: "MLflow trace info",
        matches: unreadable::is_mlflow_trace_info,
        hint: "the info of a trace holds no spans; export the traces: `mlflow.get_trace(id).to_json()`",
    },
    UnreadableFormat {
        name: "MLflow metric",
        matches: unreadable::is_mlflow_metric,
        hint: "metrics hold no steps; export the traces: `mlflow.get_trace(id).to_json()`",
    },
    UnreadableFormat {
        name: "Braintrust dataset row",
        matches: unreadable::is_braintrust_dataset,
        hint: "a dataset holds no runs; export the rows of the logs or of the experiment: `/v1/project_logs/{id}/fetch`",
    },
    UnreadableFormat {
        name: "Braintrust experiment",
        matches: unreadable::is_braintrust_experiment,
        hint: "the summary of an experiment holds no rows; export the rows of the logs or of the experiment: `/v1/project_logs/{id}/fetch`",
    },
    UnreadableFormat {
        name: "OpenTelemetry metrics",
        matches: unreadable::is_otel_metrics,
        hint: "metrics hold no steps; export the traces",
    },
    UnreadableFormat {
        name: "Jaeger list of names",
        matches: unreadable::is_jaeger_list,
        hint: "a list of services or operations holds no spans; download the traces as JSON",
    },
    UnreadableFormat {
        name: "list of service dependencies",
        matches: unreadable::is_dependency_link,
        hint: "dependencies hold no spans; download the traces as JSON",
    },
    UnreadableFormat {
        name: "Weave call",
        matches: unreadable::is_weave_call,
        hint: "calls of Weave are not read; send the traces over OTLP to Gradus, or export them as OTLP",
    },
    UnreadableFormat {
        name: "W&B run",
        matches: unreadable::is_wandb_run,
        hint: "the history of a run holds metrics, not steps; send the traces over OTLP to Gradus, or export them as OTLP",
    },
    UnreadableFormat {
        name: "Helicone request",
        matches: unreadable::is_helicone_request,
        hint: "requests of a gateway do not say which belong together; send the traces over OTLP to Gradus, or export them as OTLP",
    },
    UnreadableFormat {
        name: "AgentOps event",
        matches: unreadable::is_agentops_event,
        hint: "events of AgentOps are not read; send the traces over OTLP to Gradus, or export them as OTLP",
    },
    UnreadableFormat {
        name: "Opik record",
        matches: unreadable::is_opik_record,
        hint: "traces and spans of Opik are not read; send the traces over OTLP to Gradus, or export them as OTLP",
    },
    UnreadableFormat {
        name: "Datadog LLM span",
        matches: unreadable::is_datadog_span,
        hint: "spans of Datadog are not read; send the traces over OTLP to Gradus, or export them as OTLP",
    },
    UnreadableFormat {
        name: "OpenAI chat completion",
        matches: unreadable::is_chat_completion,
        hint: "one reply without its request; record the messages of the whole conversation",
    },
    UnreadableFormat {
        name: "OpenAI batch",
        matches: unreadable::is_openai_batch,
        hint: "requests and replies of a batch belong to no conversation; record whole conversations",
    },
    UnreadableFormat {
        name: "OpenAI Assistants object",
        matches: unreadable::is_assistants_object,
        hint: "objects of the Assistants API are not read; export the messages of the thread as chat messages",
    },
    UnreadableFormat {
        name: "Claude Code result",
        matches: unread_records::is_claude_result,
        hint: "it holds no steps: run claude with --output-format stream-json, or read ~/.claude/projects",
    },
    UnreadableFormat {
        name: "Claude Code prompt history",
        matches: unread_records::is_claude_history,
        hint: "it holds prompts only: read ~/.claude/projects",
    },
    UnreadableFormat {
        name: "Codex prompt history",
        matches: unread_records::is_codex_history,
        hint: "it holds prompts only: read ~/.codex/sessions",
    },
    UnreadableFormat {
        name: "Gemini CLI log",
        matches: unread_records::is_gemini_log,
        hint: "it holds prompts only: read the chats folder beside it",
    },
    UnreadableFormat {
        name: "OpenCode storage file",
        matches: unread_records::is_opencode_storage,
        hint: "it holds one part of a session: run opencode export SESSION",
    },
];
