"""Filters for phoenix_parity.py: those that a real Phoenix takes, and those that it refuses."""

ACCEPTED = """
span_kind == 'LLM'
span_kind == 'llm'
span_kind in ['LLM', 'TOOL']
span_kind in ('llm',)
span_kind not in ['LLM', 'unknown']
'ool' in span_kind
span_kind != 'LLM' and not (name == 'x')
name == 'foo' or 'step' in name
'LOOKUP' not in name
'lookup' in name
'STRASSE' in name
'straße' in name
'STRAßE' in name
'' in name
parent_id is None
parent_id == None
None is parent_id
parent_id is not None
parent_span is None
parent_span is not None
not (parent_span is None)
parent_span != None and parent_id is not None
parent_id is not None and parent_span is None
parent_id == '00000000feed0001'
status_code == 'ERROR'
status_code == 'error'
status_code in ['ok', 'unset']
'timeout' in status_message
status_message == ''
status_message > 'S'
latency_ms > 1000
latency_ms >= 100 and latency_ms < 500
100 < latency_ms < 500
latency_ms == 12.345
latency_ms / 1000 > 0.2
latency_ms % 2 == 0
latency_ms * 2 + 1 > 500
latency_ms - 100 < 0
-latency_ms < -300
+latency_ms < 300
latency_ms / 0 > 1
latency_ms in [12.345, 24.69]
start_time > '2026-09-21T14:13:25Z'
start_time >= '2026-09-21T14:13:20Z' and start_time < '2026-09-21T16:13:25+02:00'
end_time < '2026-09-21 14:13:30+00:00'
start_time == '2026-09-21T14:13:21.000003Z'
start_time in ['2026-09-21T14:13:21.000003Z', '2026-09-21T14:13:22.000006Z']
'2026-09-21T14:13:25Z' < start_time
start_time < end_time
start_time is None
llm.token_count.total > 100
llm.token_count.prompt + llm.token_count.completion > 100
llm.token_count.prompt + llm.token_count.completion == 10020
llm.token_count.prompt - llm.token_count.completion > 10
llm.token_count.prompt >= 12
llm.token_count.total is None
llm.token_count.total is not None
llm.token_count.total != 120
not (llm.token_count.total == 120)
cumulative_token_count.total > 5
cumulative_llm_token_count_total > 100
cumulative_llm_token_count_prompt > cumulative_llm_token_count_completion
cumulative_token_count.completion == 0
llm.model_name == 'gpt-4o'
llm.model_name != 'gpt-4o'
not llm.model_name == 'gpt-4o'
llm.model_name is None or llm.model_name != 'gpt-4o'
'GPT' in llm.model_name
'gpt' not in llm.model_name
llm.model_name in ['gpt-4o', 'GPT-4o']
llm.model_name not in ['gpt-4o', 'GPT-4o']
attributes['llm']['model_name'] == 'gpt-4o'
attributes['llm.model_name'] == 'gpt-4o'
attributes[['llm','model_name']] == 'gpt-4o'
input.value == 'x'
'refund' in input.value
'e' in output.value
input.value is not None and output.value is None
metadata['topic'] == 'agent'
metadata['topic'] is None
metadata['topic'] != 'agent'
metadata['topic'] < 'b'
metadata['topic'] + 'x' == 'agentx'
'pre-' + metadata['topic'] == 'pre-agent'
metadata['topic'] + metadata['text'] == 'agent12'
metadata['nested']['a']['b'] == 'c'
metadata[['nested', 'a', 'b']] == 'c'
'"b":"c"' in metadata['nested']
metadata['nested'] is not None
metadata['list'][0] == 1
metadata['list'][1]['a'] == 'b'
metadata['list'] == '[1,{"a":"b"}]'
metadata['list'][7] is None
metadata['count'] > 3
metadata['count'] >= 3
metadata['count'] == 3
metadata['count'] == '3'
metadata['count'] == '3.0'
metadata['count'] in [5, 7]
metadata['count'] in ['5', '7']
metadata['count'] not in [5, 7]
metadata['count'] + 1 > 5
metadata['count'] * metadata['rate'] > 1
metadata['count'] / metadata['rate'] == 20
metadata['count'] % 2 == 1
-metadata['count'] < -4
metadata['count'] > metadata['rate']
metadata['count'] == metadata['count']
metadata['count'] != metadata['text']
metadata['rate'] == 0.25
metadata['rate'] == 0.3333333333333333
metadata['rate'] == 0.333333333333333
metadata['rate'] == '0.25'
metadata['rate'] == '-2.5'
metadata['rate'] == '1.0e+20'
metadata['rate'] < 0
metadata['text'] == ''
metadata['text'] == 12
metadata['text'] == 3
metadata['flag'] == True
metadata['flag'] is True
metadata['flag'] is not True
metadata['flag'] == False
metadata['flag'] != False
True == metadata['flag']
metadata['flag'] in [True]
metadata['flag'] not in [True, False]
metadata['flag'] == 1
metadata['flag'] == '1'
metadata['flag'] is None
(metadata['flag'] == True) == True
(metadata['flag'] == True) is None
(metadata['flag'] == True) == (metadata['count'] > 3)
metadata == 5
metadata == 'not JSON'
'agent' in metadata
my_metadata == '[1,2]'
float(metadata['count']) > 3
int(metadata['rate']) == 0.25
str(metadata['count']) == '5'
str(metadata['rate']) == '0.25'
float('5') == metadata['count']
'AG' in str(metadata['topic'])
attributes['llm']['output_messages'][0]['message']['content'] is not None
attributes['llm']['output_messages'][0]['message']['tool_calls'][0]['tool_call']['function']['name'] == 'find'
attributes['llm']['input_messages'][0]['message']['role'] == 'system'
annotations['quality'].label == 'good'
annotations['quality'].label != 'good'
annotations['quality'].label is None
annotations['quality'].label == None and annotations['quality']
annotations['quality'].score < 0.5
annotations['quality'].score + 1 > 1.5
annotations['quality'].score is not None
not annotations['quality'].score > 0.3
annotations['quality'].score == annotations['tone'].score
annotations['quality'].label == 'good' and annotations['quality'].score == 0.25
annotations['quality'].label == 'good' and annotations['tone'].score > 3
annotations['quality'].score in [0.5, 0.25]
annotations['quality']
not annotations['quality']
annotations['quality'] == False
annotations['tone'] or annotations['quality'].label == 'bad'
evals['tone'].score > 2
'because' in annotations['quality'].explanation
'x' not in annotations['quality'].explanation
annotations['quality'].identifier == 'v1'
annotations['quality'].identifier in ['v1', 'v2']
annotations['tone'].score == metadata['count']
annotations['tone'].score < metadata['count']
trace_annotations['task'].score > 0.5
trace_annotations['task'].label == 'failed' and parent_span is None
not trace_annotations['task']
total_cost > 0
total_cost > 1000
total_cost > 0.0001 and prompt_cost < completion_cost
total_cost == prompt_cost + completion_cost
any(d.cost > 0 for d in cost_details)
any(d.cost > 0.00001 and d.is_prompt for d in cost_details)
any(not d.is_prompt for d in cost_details if d.tokens > 10)
any(d.is_prompt == True for d in cost_details)
all(d.cost < 0.0001 for d in cost_details)
not all(d.is_prompt for d in cost_details)
all(d.token_type == 'input' or d.tokens < 20 for d in cost_details) and span_kind == 'LLM'
len([d for d in cost_details]) == 2
len([d for d in cost_details if d.is_prompt]) > 0
sum(d.tokens for d in cost_details) > 100
sum(d.tokens for d in cost_details) == 0 and my_attr == 4
sum(d.cost * 1000 for d in cost_details if 'put' in d.token_type) > 0.01
max(d.tokens for d in cost_details) > 50
min(d.tokens for d in cost_details) < 20
max(d.cost for d in cost_details) is None and my_attr == 4
max(d.tokens for d in cost_details) > sum(d.tokens for d in cost_details if not d.is_prompt)
any(d.token_type in ['output', 'x'] for d in cost_details) and parent_span is not None
any(d.token_type not in ['output', 'x'] for d in cost_details)
any('INP' in d.token_type for d in cost_details)
any(d.cost is None for d in cost_details)
any(d.cost_per_token != None for d in cost_details) == True
total_cost == 0 and metadata['count'] == 5
prompt_cost + completion_cost < 0
session.id == 's1'
user.id == 'u'
trace_id == '000000000000000000000000feed0001'
context.trace_id == '000000000000000000000000feed0002'
'feed' in trace_id
span_id in ['00000000feed0001','00000000feed0002']
context.span_id == '00000000feed0003'
span_id == '00000000FEED0003'
events == 1
custom.attr == 'x'
my_attr == 'x'
my_attr > 3
a == 1
attributes['a.b'] == 2
attributes['tree'][0]['a'] == 1
attributes['list']['0'] == 'x'
attributes['list'][0] == 'x'
numbers == '[1,2.5]'
attributes['map']['k']['l'] is not None
attributes['hollow'] is None
1 == 1
1 == 2
'a' == 'a' and my_attr == 4
None is None and my_attr == 4
1 + 1 == 2 and my_attr == 4
name in ['a', 'b']
name in []
name not in []
metadata['topic'] not in []
name == name
name < 'Step 2'
name + '!' == 'Step 0 Straße LOOKUP!'
'Step' + ' 0 Straße LOOKUP' == name
status_message in name
llm.model_name in name
span_kind == status_code
tool.name == 'lookup' and span_kind == 'TOOL'
True and my_attr == 4
False or my_attr == 4
not False and my_attr == 4
tool.parameters is not None
attributes['tool']['parameters']['a']['b'][0]['c'] == 1
my_attr == 0x4
my_attr == 4.0e0
my_attr == 4_0
my_attr == 4 # four
(my_attr
 == 4)
my_attr in (4,)
name == 'Step 0 Stra\\u00dfe LOOKUP'
name == 'Step 0 ' 'Straße LOOKUP'
name == r'Step 0 Straße LOOKUP'
name == \"\"\"Step 0 Straße LOOKUP\"\"\"
"""

REFUSED = """
name.startswith('x')
name.contains('x')
name.upper() == 'X'
len(name) > 3
lambda: 1
__import__('os')
name == 1
latency_ms > '100'
True
None
name
latency_ms
annotations['x'].label
metadata['x']
re.match('a', name)
llm.output_messages[0].message.content == 'x'
llm.tools[0].tool.json_schema == 'x'
attributes[0] == 'x'
attributes['a', 'b'] == 'x'
attributes['a'].b == 'x'
attributes[-1] == 'x'
attributes[1.5] == 'x'
metadata['a'][True] == 1
span_kind = 'LLM'
span_kind = 3
span_kind ==
== 'x'
(name == 'x'
name == 'x')
name == 'x' name == 'y'
name == 'x' and
name == 'x
name === 'x'
name <> 'x'
name == 'x' && name == 'y'
name == 'x' | name == 'y'
name == `x`
name == 'x'; name == 'y'
name := 'x'
x if name == 'x' else y
not name
name and name == 'x'
metadata['flag'] and name == 'x'
name == 'x' or 5
name is 'x'
name == ['x']
['x'] == name
'x' in ['x']
1 in [1, 2]
name in ['x', 1]
name in [None]
name in [['x']]
name in 5
name in 'abc'
'x' in 'xyz'
1 in name
'x' in latency_ms
'x' in start_time
'x' in (name + 'y')
name + 1 == 'x'
name - 'x' == 'y'
name * 2 == 'xx'
metadata['a'] + metadata['b'] > 100
2 ** 3 == 8
7 // 2 == 3
my_attr & 1 == 1
~my_attr == 1
my_attr << 1 == 2
-name == 'x'
latency_ms > True
annotations['x'] > 1
metadata['flag'] > False
name < None
start_time > '2026-01-01'
start_time > '2026-01-01T00:00:00'
start_time > 'yesterday'
start_time > 5
start_time > metadata['x']
end_time - start_time > 5
str(True) == 'True'
str(latency_ms) == '1'
str(start_time) == 'x'
str(5) == '5'
float('abc') == 1
float('1_000') == 1000
float('1e400') > 1
float(name) == 1
float(1, 2) == 1
float() == 1
float(True) == 1
bool(name) == True
parent_span
parent_span == 'x'
parent_span.name == 'x'
parent_span.attributes['x'] == 'x'
not parent_span
parent_span > None
annotations['x'].foo == 1
annotations['x']['y'] == 1
annotations['x'].label.score == 1
annotations[''] == True
tree[0] is None or 1 == 1
annotations[1].label == 'x'
evals[name].label == 'x'
cost_details == 1
any(x.cost > 1 for x in spans)
any(cost_details)
len(cost_details) > 1
len(d for d in cost_details) > 1
len([d.cost for d in cost_details]) > 1
sum(d.cost for d in cost_details)
any(d.cost for d in cost_details)
any(True for d in cost_details)
sum(d.cost > 1 for d in cost_details) > 1
sum(d.token_type for d in cost_details) > 1
any(d.price > 1 for d in cost_details)
any(d for d in cost_details)
any(d['cost'] > 1 for d in cost_details)
any(name == 'x' for d in cost_details)
any(metadata['x'] == 'x' for d in cost_details)
any(annotations['x'].score > d.cost for d in cost_details)
any(d.cost == 'x' for d in cost_details)
any(d.token_type < 'x' for d in cost_details)
any(d.token_type == 1 for d in cost_details)
any(d.is_prompt > 0 for d in cost_details)
any(d.is_prompt is True for d in cost_details)
any(d.cost in [1, 'x'] for d in cost_details)
any(d.cost in [None] for d in cost_details)
any('x' in d.cost for d in cost_details)
any(d.token_type in d.token_type for d in cost_details)
any(float(d.cost) > 1 for d in cost_details)
any(d.cost > 1 if d.is_prompt for d in cost_details)
any(d.cost > 1 for d in cost_details for e in cost_details)
any(any(e.cost > 1 for e in cost_details) for d in cost_details)
any(d.cost > 1 for d, e in cost_details)
any(d.cost > 1 async for d in cost_details)
any({d.cost > 1 for d in cost_details})
[d for d in cost_details] == 1
(d.cost for d in cost_details) == 1
[name == 'x']
{'a': 1} == 1
f'{name}' == 'x'
b'x' == name
1j == 1
... == 1
1e400 > 1
class == 'x'
a.class == 'x'
name == 'x' if True
await x
*name
name == 012
0x == 1
1__0 == 1
name == 'a\\x00b'
ｎａｍｅ == 'x'
"""


def one_a_line(text):
    """A line that begins with a space goes on with the one before."""
    joined = []
    for line in text.strip().splitlines():
        if line.startswith(" ") and joined:
            joined[-1] += "\n" + line
        else:
            joined.append(line)
    return list(dict.fromkeys(joined))


ACCEPTED, REFUSED = one_a_line(ACCEPTED), one_a_line(REFUSED)
