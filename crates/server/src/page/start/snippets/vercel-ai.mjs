// npm install ai @ai-sdk/otel @ai-sdk/openai @opentelemetry/sdk-node @opentelemetry/exporter-trace-otlp-proto zod
import { OpenTelemetry } from "@ai-sdk/otel";
import { openai } from "@ai-sdk/openai";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { NodeSDK } from "@opentelemetry/sdk-node";
import { generateText, registerTelemetry, stepCountIs, tool } from "ai";
import { z } from "zod";

const sdk = new NodeSDK({
  serviceName: "my-agent",
  traceExporter: new OTLPTraceExporter({ url: "__ENDPOINT__/v1/traces"__KEY_ARGUMENT__ }),
});
sdk.start();
registerTelemetry(new OpenTelemetry());

// Your agent starts here. This one is an example.
const { text } = await generateText({
  model: openai.chat("gpt-4o"),
  tools: {
    get_stock: tool({
      description: "How many of an article are in stock.",
      inputSchema: z.object({ article: z.string() }),
      execute: async ({ article }) => `${article}: 12 in stock`,
    }),
  },
  stopWhen: stepCountIs(5),
  prompt: "How many lamps are there?",
});
console.log(text);
await sdk.shutdown();
