"""An agent on the client of OpenAI, traced as Phoenix's documentation shows: `register()` without arguments. The request is on standard
input, the answer is printed."""
import json
import os
import sys

from openai import OpenAI
from phoenix.otel import register

provider = register(auto_instrument=True, verbose=False)
client = OpenAI(base_url=os.environ["MODEL_URL"], api_key="none")
TOOL = {"name": "get_stock", "description": "How many of an article are in stock.",
        "parameters": {"type": "object", "properties": {"article": {"type": "string"}}, "required": ["article"]}}

with provider.get_tracer("agent").start_as_current_span("agent"):
    messages = [{"role": "user", "content": sys.stdin.read()}]
    while True:
        message = client.chat.completions.create(model="gpt-4o", messages=messages, tools=[{"type": "function", "function": TOOL}]).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or []:
            article = json.loads(call.function.arguments)["article"]
            messages.append({"role": "tool", "tool_call_id": call.id, "content": f"{article}: 12 in stock"})
        if not message.tool_calls:
            break
print(message.content)
provider.shutdown()
