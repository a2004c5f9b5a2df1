"""LangGraph, traced by OpenInference through the global provider, which has no exporter."""
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_tool_call
from langchain_core.messages import ToolMessage
from langchain_openai import ChatOpenAI
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from shop import MODEL_URL, make_tests, order_of, stock_of

trace.set_tracer_provider(TracerProvider())
LangChainInstrumentor().instrument()


def get_stock(article: str) -> str:
    """How many of an article are in stock."""
    return stock_of(article)


def place_order(article: str, count: int) -> str:
    """Orders an article."""
    return order_of(article, count)


@wrap_tool_call
def report_errors(request, handler):
    try:
        return handler(request)
    except ValueError as error:
        return ToolMessage(content=str(error), tool_call_id=request.tool_call["id"], status="error")


agent = create_agent(ChatOpenAI(model="gpt-4o", base_url=MODEL_URL, api_key="none"), [get_stock, place_order], middleware=[report_errors])


def ask(request):
    return agent.invoke({"messages": [{"role": "user", "content": request}]})["messages"][-1].content


test_answer, test_order, test_failed_tool, test_model_as_judge, test_two_requests, test_trials = make_tests(ask)
