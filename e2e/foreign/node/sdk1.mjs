// The official TypeScript client, first line.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { order, run } from "./steps.mjs";

const client = new Client({ name: "typescript-1", version: "1" });
const [program, ...args] = order.command ?? [];
const transport = order.url
  ? new StreamableHTTPClientTransport(new URL(order.url), { requestInit: { headers: order.headers } })
  : new StdioClientTransport({ command: program, args, env: order.env });
let version;
transport.setProtocolVersion = ((set) => (value) => ((version = value), set?.call(transport, value)))(transport.setProtocolVersion);
await client.connect(transport);
await run(client, (params, options) => client.callTool(params, undefined, options), () => version);
