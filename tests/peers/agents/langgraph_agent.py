"""An agent of LangGraph, traced by OpenInference: the request is on standard input, the answer is printed."""
import os
import sys

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
LangChainInstrumentor().instrument(tracer_provider=provider)


def get_stock(article: str) -> str:
    """How many of an article are in stock."""
    return f"{article}: 12 in stock"


llm = ChatOpenAI(model="gpt-4o", base_url=os.environ["MODEL_URL"], api_key="none")
agent = create_agent(llm, [get_stock])
result = agent.invoke({"messages": [{"role": "user", "content": sys.stdin.read()}]})
print(result["messages"][-1].content)
provider.shutdown()
