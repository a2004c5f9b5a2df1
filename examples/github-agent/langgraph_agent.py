"""The same agent in LangGraph: native tool calls, traced with OpenInference.

  python langgraph_agent.py "Which repositories do I have?"
"""
import os
import sys

from langchain.agents import create_agent
from langchain.agents.middleware import wrap_tool_call
from langchain.messages import ToolMessage
from langchain_openai import ChatOpenAI
from openinference.instrumentation.langchain import LangChainInstrumentor

from github_tools import TOOLS
from tracing import tracer_provider

provider = tracer_provider("github-agent-langgraph")
LangChainInstrumentor().instrument(tracer_provider=provider)


@wrap_tool_call
def show_errors_to_the_model(request, handler):
    try:
        return handler(request)
    except RuntimeError as error:
        return ToolMessage(str(error), tool_call_id=request.tool_call["id"], status="error")


model = ChatOpenAI(model=os.environ.get("OPENAI_MODEL", "gpt-4o"))
agent = create_agent(model, TOOLS, middleware=[show_errors_to_the_model])
for request in sys.argv[1:]:
    state = agent.invoke({"messages": [{"role": "user", "content": request}]})
    print(state["messages"][-1].content)
provider.shutdown()
