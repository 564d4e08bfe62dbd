// Watches the tools of a server with one of the official SDKs: prints the names at the start and whenever the server says that they
// changed, one JSON list a line, until stdin ends. `watch.mjs 1|2 ORDER`.
import * as v2 from "@modelcontextprotocol/client";
import * as v2stdio from "@modelcontextprotocol/client/stdio";
import * as v1 from "@modelcontextprotocol/sdk/client/index.js";
import * as v1stdio from "@modelcontextprotocol/sdk/client/stdio.js";

const [line, text] = process.argv.slice(2);
const order = JSON.parse(text);
const show = (tools) => console.log(JSON.stringify(tools.map((tool) => tool.name).sort()));
const onChanged = (error, tools) => (error ? console.error(error) : show(tools));
const options = { listChanged: { tools: { onChanged } }, versionNegotiation: { mode: order.era } };
const client = new (line === "1" ? v1 : v2).Client({ name: "watcher", version: "1" }, options);
const [program, ...args] = order.command ?? [];
const transport = order.url
  ? new v2.StreamableHTTPClientTransport(new URL(order.url), { requestInit: { headers: order.headers } })
  : new (line === "1" ? v1stdio : v2stdio).StdioClientTransport({ command: program, args, env: order.env });
await client.connect(transport);
show((await client.listTools()).tools);
process.stdin.on("end", () => client.close()).resume();
