// The client of the official TypeScript SDK, as mcp_client.py: TARGET in the arguments, calls on standard input.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.env.NODE_FOLDER + "/");
const load = async (name) => import(pathToFileURL(require.resolve(`@modelcontextprotocol/sdk/client/${name}.js`)));
const { Client } = await load("index");

const target = process.argv[2];
let transport;
if (target.startsWith("http")) {
  const { StreamableHTTPClientTransport } = await load("streamableHttp");
  const headers = process.env.MCP_KEY ? { authorization: `Bearer ${process.env.MCP_KEY}` } : {};
  transport = new StreamableHTTPClientTransport(new URL(target), { requestInit: { headers } });
} else {
  const { StdioClientTransport } = await load("stdio");
  const [command, ...args] = JSON.parse(target);
  transport = new StdioClientTransport({ command, args, env: process.env });
}
let input = "";
for await (const part of process.stdin) input += part;
const calls = input.split("\n").filter((line) => line.trim()).map((line) => JSON.parse(line));
const client = new Client({ name: "peer", version: "1" });
await client.connect(transport);
const listed = await client.listTools();
const tools = Object.fromEntries(listed.tools.map((tool) => [tool.name, { reads: tool.annotations.readOnlyHint, schema: tool.inputSchema }]));
const answers = [];
for (const call of calls) {
  const result = await client.callTool({ name: call.tool, arguments: call.arguments });
  answers.push({ is_error: Boolean(result.isError), text: result.content.map((part) => part.text).join("\n") });
}
console.log(JSON.stringify({ instructions: client.getInstructions(), tools, answers }));
await client.close();
