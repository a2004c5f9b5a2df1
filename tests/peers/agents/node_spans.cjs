// A few OpenInference spans made by hand, sent by OpenTelemetry's exporters for Node.
//
//   node_spans.cjs http|proto|grpc     (NODE_PATH names the folder with the packages)
//
// The exporter takes its address from the environment, or its default. Prints what was sent, as the collector should
// give it back: one JSON array of spans.
const { context, diag, DiagConsoleLogger, DiagLogLevel, SpanStatusCode, trace } = require("@opentelemetry/api");
const { resourceFromAttributes } = require("@opentelemetry/resources");
const { SimpleSpanProcessor, BatchSpanProcessor, TracerProvider } = require("@opentelemetry/sdk-trace");
const { OTLPTraceExporter } = require(`@opentelemetry/exporter-trace-otlp-${process.argv[2]}`);

diag.setLogger({ ...new DiagConsoleLogger(), error: console.error, warn: console.error }, DiagLogLevel.WARN);
const name = process.env.OTEL_SERVICE_NAME;
const exporter = new OTLPTraceExporter();
// One span a request for one of them: a trace then arrives in pieces.
const processor = process.argv[2] === "proto" ? new SimpleSpanProcessor({ exporter }) : new BatchSpanProcessor({ exporter });
const provider = new TracerProvider({ spanProcessors: [processor], ...(name ? { resource: resourceFromAttributes({ "service.name": name }) } : {}) });
const tracer = provider.getTracer("by-hand", "1.0");
const sent = [];

function span(title, parent, attributes, failure) {
  const made = tracer.startSpan(title, { attributes }, parent ? trace.setSpan(context.active(), parent) : context.active());
  if (failure) {
    made.recordException(new Error(failure));
    made.setStatus({ code: SpanStatusCode.ERROR, message: failure });
  }
  const ids = made.spanContext();
  sent.push({ trace_id: ids.traceId, span_id: ids.spanId, parent_id: parent ? parent.spanContext().spanId : null, name: title,
    kind: attributes["openinference.span.kind"], attributes });
  return made;
}

const root = span("node_agent", null, { "openinference.span.kind": "AGENT", "agent.name": "node_agent", "input.value": "Wie viele Lampen gibt es? 灯 💡", "output.value": "12 \"Lampen\"\n\tund\u0001 nichts sonst",
  "session.id": "node-1", "tag.tags": ["blue", "", "ünï"], "empty": "", "dotted.key.with.many.parts": true });
span("chat", root, { "openinference.span.kind": "LLM", "llm.model_name": "gpt-4o", "llm.token_count.prompt": 11, "llm.token_count.completion": 7, "llm.token_count.total": 18,
  "llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": "Wie viele Lampen gibt es? 灯 💡",
  "llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "I look up how many lamps there are.",
  "llm.output_messages.0.message.tool_calls.0.tool_call.id": "call_1",
  "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "get_stock",
  "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": '{"article": "lamp"}',
  "largest": Number.MAX_SAFE_INTEGER, "negative": -42, "half": 0.5, "numbers": [1, 2, 3], "flags": [true, false] }).end();
span("get_stock", root, { "openinference.span.kind": "TOOL", "tool.name": "get_stock", "input.value": '{"article": "lamp"}', "output.value": "lamp: 12 in stock", "tool.parameters": '{"article": "lamp"}' }).end();
span("get_stock", root, { "openinference.span.kind": "TOOL", "tool.name": "get_stock", "input.value": '{"article": "unicorn"}' }, "no such article: unicorn").end();
root.end();
provider.shutdown().then(() => console.log(JSON.stringify(sent)));
