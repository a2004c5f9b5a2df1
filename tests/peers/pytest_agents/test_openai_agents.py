"""The OpenAI Agents SDK, traced by OpenInference with a provider that nobody else knows."""
from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool
from openai import AsyncOpenAI
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor
from opentelemetry.sdk.trace import TracerProvider

from shop import MODEL_URL, make_tests, order_of, stock_of

OpenAIAgentsInstrumentor().instrument(tracer_provider=TracerProvider(), exclusive_processor=True)


# By default the SDK does not tell the model what went wrong.
@function_tool(failure_error_function=lambda _, error: str(error))
def get_stock(article: str) -> str:
    """How many of an article are in stock."""
    return stock_of(article)


@function_tool
def place_order(article: str, count: int) -> str:
    """Orders an article."""
    return order_of(article, count)


client = AsyncOpenAI(base_url=MODEL_URL, api_key="none")
agent = Agent(name="shop", tools=[get_stock, place_order], model=OpenAIChatCompletionsModel(model="gpt-4o", openai_client=client))


def ask(request):
    return Runner.run_sync(agent, request).final_output


test_answer, test_order, test_failed_tool, test_model_as_judge, test_two_requests, test_trials = make_tests(ask)
