"""LlamaIndex's ReAct agent, which thinks in text, with a provider of its own."""
import asyncio

from llama_index.core.agent.workflow import ReActAgent
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAI
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor
from opentelemetry.sdk.trace import TracerProvider

from shop import MODEL_URL, make_tests, order_of, stock_of

LlamaIndexInstrumentor().instrument(tracer_provider=TracerProvider())


def get_stock(article: str) -> str:
    """How many of an article are in stock."""
    return stock_of(article)


def place_order(article: str, count: int) -> str:
    """Orders an article."""
    return order_of(article, count)


def ask(request):
    async def run():
        llm = OpenAI(model="gpt-4o", api_base=MODEL_URL, api_key="none")
        agent = ReActAgent(tools=[FunctionTool.from_defaults(get_stock), FunctionTool.from_defaults(place_order)], llm=llm, streaming=False)
        return await agent.run(user_msg=request)

    return asyncio.run(run())


test_answer, test_order, test_failed_tool, test_model_as_judge, test_two_requests, test_trials = make_tests(ask)
