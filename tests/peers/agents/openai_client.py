"""A hand-written agent loop over the OpenAI client, traced by OpenInference. No root span: each model call is a trace."""
import json
import os
import sys

import openai
from openinference.instrumentation import using_session
from openinference.instrumentation.openai import OpenAIInstrumentor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
OpenAIInstrumentor().instrument(tracer_provider=provider)
client = openai.OpenAI(base_url=os.environ["MODEL_URL"], api_key="none")

TOOLS = [{"type": "function", "function": {"name": "get_stock", "description": "How many of an article are in stock.", "parameters": {
    "type": "object", "properties": {"article": {"type": "string"}}, "required": ["article"]}}}]


def get_stock(article):
    return json.dumps({"article": article, "in_stock": 12})


messages = [{"role": "system", "content": "You are a shop assistant."}]
with using_session("shop-1"):
    for query in sys.argv[1:]:
        messages.append({"role": "user", "content": query})
        while True:
            reply = client.chat.completions.create(model="gpt-4o", messages=messages, tools=TOOLS).choices[0].message
            messages.append(reply.to_dict())
            if not reply.tool_calls:
                break
            for call in reply.tool_calls:
                result = get_stock(**json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
provider.shutdown()
