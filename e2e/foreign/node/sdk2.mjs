// The official TypeScript client, second line.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { order, run } from "./steps.mjs";

const mode = { legacy: "legacy", auto: "auto" }[order.era] ?? { pin: order.era };
const client = new Client({ name: "typescript-2", version: "1" }, { versionNegotiation: { mode } });
const [program, ...args] = order.command ?? [];
const transport = order.url
  ? new StreamableHTTPClientTransport(new URL(order.url), { requestInit: { headers: order.headers } })
  : new StdioClientTransport({ command: program, args, env: order.env });
await client.connect(transport);
await run(client, (params, options) => client.callTool(params, options), () => client.getNegotiatedProtocolVersion());
