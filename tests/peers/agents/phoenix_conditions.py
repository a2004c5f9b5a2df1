"""Conditions on spans that Phoenix takes, and some that it does not."""

FILTERS = [
    "span_kind == 'LLM'", "span_kind == 'llm'", "span_kind != 'LLM'", "span_kind in ['LLM', 'TOOL']", "span_kind not in ['LLM', 'TOOL']",
    "span_kind is None", "name == 'ChatCompletion'", "'chat' in name", "'CHAT' in name", "'chat' not in name", "name != 'ChatCompletion'",
    "status_code == 'ERROR'", "status_code in ['OK', 'UNSET']", "status_message == ''", "status_message != ''", "'error' in status_message",
    "parent_id is None", "parent_id is not None", "parent_span is None", "parent_span is not None",
    "latency_ms > 10", "latency_ms >= 0 and latency_ms < 5", "0 < latency_ms < 50", "latency_ms / 2 > 5",
    "start_time > '2020-01-01T00:00:00Z'", "end_time < '2020-01-01T00:00:00Z'", "start_time >= '2020-01-01T00:00:00+00:00' and span_kind == 'TOOL'",
    "cumulative_token_count.total > 0", "cumulative_token_count.prompt > 20", "cumulative_token_count.completion == 0",
    "llm.model_name == 'gpt-4o'", "'gpt' in llm.model_name", "llm.model_name != 'gpt-4o'", "llm.model_name is None", "llm.model_name is not None",
    "llm.token_count.prompt > 10", "llm.token_count.prompt == 11", "llm.token_count.prompt + llm.token_count.completion > 10",
    "llm.token_count.total is not None", "llm.token_count.total - llm.token_count.prompt > 3", "llm.token_count.prompt % 2 == 0",
    "input.value is None", "input.value is not None", "'stock' in input.value", "'a' in output.value and 'e' in output.value", "output.value != ''",
    "input.mime_type == 'application/json'", "output.mime_type in ('text/plain', 'application/json')",
    "attributes['llm']['model_name'] == 'gpt-4o'", "attributes['openinference']['span']['kind'] == 'TOOL'", "attributes['there']['is']['none'] == 1",
    "attributes['llm']['output_messages'][0]['message']['role'] == 'assistant'", "metadata['k'] == 'v'", "metadata is not None",
    "tool.name is not None", "tool.name == 'get_weather'", "session.id is not None", "user.id is None",
    "span_kind == 'LLM' and 'gpt' in llm.model_name", "span_kind == 'TOOL' or span_kind == 'AGENT'", "not span_kind == 'LLM'", "not (span_kind == 'LLM' or parent_id is None)",
    "not llm.model_name == 'gpt-4o'", "span_kind == 'LLM' and not llm.token_count.prompt > 10", "float(llm.token_count.prompt) > 10.5", "int(llm.token_count.prompt) > 10",
    "'gpt-4o' == llm.model_name", "llm.provider == 'openai'", "llm.system is not None",
    "trace_id == '0'", "span_id != '0'", "span_id in ['0', '1']", "input.value == output.value", "llm.invocation_parameters is not None",
]

# These hold once annotations were logged.
ANNOTATED = [
    "annotations['correctness'].label == 'correct'", "annotations['correctness'].label != 'correct'", "annotations['correctness'].score < 0.5",
    "annotations['correctness'].score is None", "evals['correctness'].label == 'incorrect'", "'because' in annotations['correctness'].explanation",
    "annotations['correctness']", "not annotations['correctness']", "annotations['nobody'].label == 'x'", "annotations['mine'].identifier == 'second'",
    "annotations['correctness'].label == 'correct' and span_kind == 'LLM'", "trace_annotations['whole'].label == 'fine'", "trace_annotations['length'].score > 1",
]

REFUSED = ["start_time > '2020-01-01'", "str(llm.token_count.prompt) == '11'", "name ==", "name.upper() == 'X'", "__import__('os')", "name == 1", "lambda: 1", "True", "[x for x in y]", "span_kind = 'LLM'", "eval('1')"]
