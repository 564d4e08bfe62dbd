// A server made with the official TypeScript SDK, first line, with sessions: `server1.mjs stdio|http`; over HTTP it prints its
// address. The same as client/tests/python_servers/server.py.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { z } from "zod";

const text = (text) => ({ content: [{ type: "text", text }] });

function make() {
  const server = new McpServer({ name: "official-typescript", version: "9.1" });
  const terms = { a: z.number(), b: z.number() };
  server.registerTool("add", { description: "Adds.", inputSchema: terms, outputSchema: { result: z.number() } }, ({ a, b }) => ({
    ...text(String(a + b)),
    structuredContent: { result: a + b },
  }));
  server.registerTool("fail", { description: "Fails.", inputSchema: { why: z.string() } }, ({ why }) => {
    throw new Error(why);
  });
  server.registerTool("steps", { description: "Reports progress.", inputSchema: {} }, async (_, extra) => {
    const progressToken = extra._meta?.progressToken;
    for (let progress = 0; progress < 3 && progressToken !== undefined; progress++) {
      const params = { progressToken, progress, total: 3, message: `step ${progress}` };
      await extra.sendNotification({ method: "notifications/progress", params });
    }
    return text("done");
  });
  server.registerResource("text", "demo://text", {}, (uri) => ({ contents: [{ uri: uri.href, text: "the text" }] }));
  server.registerPrompt("review", { argsSchema: { code: z.string() } }, ({ code }) => ({
    messages: [{ role: "user", content: { type: "text", text: `Please review: ${code}` } }],
  }));
  return server;
}

if (process.argv[2] === "stdio") {
  await make().connect(new StdioServerTransport());
} else {
  const sessions = new Map();
  const http = createServer(async (request, response) => {
    let transport = sessions.get(request.headers["mcp-session-id"]);
    if (!transport) {
      const onsessioninitialized = (id) => sessions.set(id, transport);
      transport = new StreamableHTTPServerTransport({ sessionIdGenerator: randomUUID, onsessioninitialized });
      await make().connect(transport);
    }
    await transport.handleRequest(request, response);
  });
  http.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${http.address().port}/mcp`));
}
