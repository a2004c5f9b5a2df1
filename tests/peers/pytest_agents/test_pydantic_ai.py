"""pydantic-ai with its own tracing (GenAI conventions), set up by the test's module as its documentation says."""
from opentelemetry.sdk.trace import TracerProvider
from pydantic_ai import Agent, InstrumentationSettings
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from shop import MODEL_URL, make_tests, order_of, stock_of

Agent.instrument_all(InstrumentationSettings(tracer_provider=TracerProvider()))
agent = Agent(OpenAIChatModel("gpt-4o", provider=OpenAIProvider(base_url=MODEL_URL, api_key="none")), name="shop", retries=3)


@agent.tool_plain
def get_stock(article: str) -> str:
    """How many of an article are in stock."""
    try:
        return stock_of(article)
    except ValueError as error:
        raise ModelRetry(str(error)) from error


@agent.tool_plain
def place_order(article: str, count: int) -> str:
    """Orders an article."""
    return order_of(article, count)


def ask(request):
    return agent.run_sync(request).output


test_answer, test_order, test_failed_tool, test_model_as_judge, test_two_requests, test_trials = make_tests(ask)
