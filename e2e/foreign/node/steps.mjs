// What a client does with a server, step by step, and what came of each: one JSON object on stdout. The order comes on stdin:
// {"url", "headers"} or {"command", "env"}, the era, and files that tools watch and write. The drivers of the other
// languages do the same; e2e/test_foreign_clients.py knows what has to come out.
import { readFileSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

export const order = JSON.parse(readFileSync(0, "utf8"));

const written = (path) => {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
};

/** Waits until the tool has written this. */
const until = async (path, wanted) => {
  for (const end = Date.now() + 30_000; written(path) !== wanted; await sleep(10)) {
    if (Date.now() > end) throw new Error(`the tool wrote "${written(path)}", not "${wanted}"`);
  }
};

/** `call(params, options)` is the one method whose shape differs between the SDKs. */
export async function run(client, call, version) {
  const steps = {
    version,
    list: async () => (await client.listTools()).tools.map((tool) => tool.name).sort(),
    call: async () => (await call({ name: "echo", arguments: { text: order.text } })).content[0].text,
    error: async () => {
      const result = await call({ name: "raises", arguments: { text: "no such city" } });
      return [result.isError, result.content[0].text];
    },
    // By now the tools are known with their output schemas, and the SDKs check results against them.
    output: async () => {
      const terms = { a: 6, b: 7 };
      const results = [await call({ name: "sum", arguments: terms }), await call({ name: "both", arguments: terms })];
      return [...results.map((result) => result.structuredContent ?? null), results[0].content[0].text];
    },
    unknown: async () => {
      try {
        await call({ name: "no_such_tool", arguments: {} });
      } catch (error) {
        return error.code;
      }
    },
    progress: async () => {
      const seen = [];
      // The code goes on when a step was seen: clients drop what they have not yet handed on when the answer comes.
      const onprogress = ({ progress, total, message }) => {
        seen.push([progress, total, message]);
        writeFileSync(order.seen, String(progress));
      };
      writeFileSync(order.seen, "");
      const result = await call({ name: "paced", arguments: { path: order.seen, count: 3 } }, { onprogress });
      return [seen, result.content[0].text];
    },
    resources: async () => {
      const listed = (await client.listResources()).resources.map((resource) => resource.uri).sort();
      const text = (await client.readResource({ uri: "probe://notes" })).contents[0].text;
      return [listed, text, (await client.readResource({ uri: "probe://picture" })).contents[0].blob];
    },
    prompts: async () => {
      const listed = (await client.listPrompts()).prompts.map((prompt) => prompt.name);
      const got = await client.getPrompt({ name: "greet", arguments: { name: "Ada" } });
      return [listed, got.messages[0].content.text];
    },
    cancel: async () => {
      const given = new AbortController();
      const ended = call({ name: "patient", arguments: { path: order.mark } }, { signal: given.signal }).then(
        () => "answered",
        () => "given up",
      );
      await until(order.mark, "started");
      given.abort();
      // Where the client tells the server, the server hears it while the connection is still open.
      if (order.told) await until(order.mark, "cancelled");
      return await ended;
    },
  };
  const told = {};
  for (const [name, step] of Object.entries(steps)) {
    if (order.without.includes(name)) continue;
    try {
      told[name] = await step();
    } catch (error) {
      told[name] = { failed: `${error.name}: ${error.message}` };
    }
  }
  await client.close();
  console.log(JSON.stringify(told));
}
