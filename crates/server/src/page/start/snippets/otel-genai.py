# pip install openai opentelemetry-instrumentation-genai-openai opentelemetry-exporter-otlp-proto-http
import os

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor

provider = TracerProvider(resource=Resource.create({"service.name": "my-agent"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter("__ENDPOINT__/v1/traces"__KEY_ARGUMENT__)))
# Messages are needed to grade steps; without these lines spans have none.
os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "gen_ai_latest_experimental"
os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "SPAN_ONLY"
OpenAIInstrumentor().instrument(tracer_provider=provider)

# Your agent starts here. This one is an example.
import json

from openai import OpenAI


def get_stock(article):
    return f"{article}: 12 in stock"


client = OpenAI()
tools = [{"type": "function", "function": {
    "name": "get_stock", "description": "How many of an article are in stock.",
    "parameters": {"type": "object", "properties": {"article": {"type": "string"}}, "required": ["article"]}}}]
messages = [{"role": "user", "content": "How many lamps are there?"}]
# One span around the run makes its model calls one trace.
with provider.get_tracer("my-agent").start_as_current_span("invoke_agent my-agent", attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "my-agent"}):
    while True:
        reply = client.chat.completions.create(model="gpt-4o", messages=messages, tools=tools).choices[0].message
        messages.append(reply.to_dict())
        if not reply.tool_calls:
            break
        for call in reply.tool_calls:
            result = get_stock(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
print(reply.content)
