"""The same agent with the OpenAI Agents SDK: native tool calls, traced with OpenInference.

  python openai_agents_agent.py "Which repositories do I have?"
"""
import os
import sys

from agents import Agent, Runner, function_tool, set_default_openai_api
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor

from github_tools import TOOLS
from tracing import tracer_provider

provider = tracer_provider("github-agent-openai-agents")
OpenAIAgentsInstrumentor().instrument(tracer_provider=provider, exclusive_processor=True)
set_default_openai_api("chat_completions")  # understood by every compatible endpoint

agent = Agent(
    name="github",
    instructions="You work on GitHub with the given tools.",
    tools=[function_tool(tool) for tool in TOOLS],
    model=os.environ.get("OPENAI_MODEL", "gpt-4o"),
)
for request in sys.argv[1:]:
    print(Runner.run_sync(agent, request).final_output)
provider.shutdown()
