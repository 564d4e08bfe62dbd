// A server made with the official TypeScript SDK, second line: `server2.mjs stdio|http`; over HTTP it prints its address.
// The same as client/tests/python_servers/server.py.
import { createServer } from "node:http";
import { toNodeHandler } from "@modelcontextprotocol/node";
import { createMcpHandler, McpServer } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { z } from "zod";

const text = (text) => ({ content: [{ type: "text", text }] });

function make() {
  const server = new McpServer({ name: "official-typescript", version: "9.2" });
  const sum = { result: z.number() };
  const terms = { a: z.number(), b: z.number() };
  server.registerTool("add", { description: "Adds.", inputSchema: z.object(terms), outputSchema: z.object(sum) }, ({ a, b }) => ({
    ...text(String(a + b)),
    structuredContent: { result: a + b },
  }));
  server.registerTool("fail", { description: "Fails.", inputSchema: z.object({ why: z.string() }) }, ({ why }) => {
    throw new Error(why);
  });
  server.registerTool("steps", { description: "Reports progress.", inputSchema: z.object({}) }, async (_, ctx) => {
    const progressToken = ctx.mcpReq._meta?.progressToken;
    for (let progress = 0; progress < 3 && progressToken !== undefined; progress++) {
      const params = { progressToken, progress, total: 3, message: `step ${progress}` };
      await ctx.mcpReq.notify({ method: "notifications/progress", params });
    }
    return text("done");
  });
  server.registerResource("text", "demo://text", {}, (uri) => ({ contents: [{ uri: uri.href, text: "the text" }] }));
  server.registerPrompt("review", { argsSchema: z.object({ code: z.string() }) }, ({ code }) => ({
    messages: [{ role: "user", content: { type: "text", text: `Please review: ${code}` } }],
  }));
  return server;
}

if (process.argv[2] === "stdio") {
  serveStdio(make);
} else {
  const http = createServer(toNodeHandler(createMcpHandler(make)));
  http.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${http.address().port}/mcp`));
}
