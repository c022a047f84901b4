import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer, request as requestHttp } from "node:http";
import type { IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { expect, onTestFinished, test } from "vitest";
import { commandsFor } from "../client/startCommand.ts";
import { ask, untilState } from "./connecting.ts";
import { developmentToken, startWaypost, temporaryFolder } from "./waypost.ts";

// The workers of the guides pull from a real server. Without Go on this machine, a recording of the requests
// that its worker makes takes its place.

const origin = "https://worker.internal";
const home = join(import.meta.dirname, "../..");
const recordingFile = join(import.meta.dirname, "recordings/worker.go.json");

/** A request as a worker makes it. Values that differ each time have names, such as `<token>`. */
type Recorded = { method: string; path: string; headers: [name: string, value: string][]; body: string };

const readRecording = (): Recorded[] => JSON.parse(readFileSync(recordingFile, "utf8")) as Recorded[];

/** Returns a program of a guide. */
function readProgram(guide: string, file: string): string {
  const text = readFileSync(join(home, "docs/guides", guide), "utf8");
  const [, source = ""] = new RegExp(`<!-- file: ${file} -->\n\`\`\`\\w+\n(.*?)\`\`\``, "s").exec(text) ?? [];
  expect(source).not.toBe("");
  return source;
}

/** Starts a server that records requests, and forwards each to the server after `before` has ended. */
async function startTap(upstream: string, before: (path: string, count: number) => Promise<void>) {
  const recorded: Recorded[] = [];
  const tokens = new Map<string, string>();
  const tap = createServer(async (incoming, outgoing) => {
    const { method = "", url: path = "", rawHeaders } = incoming;
    const body = (await buffer(incoming)).toString();
    const mask = (value: string): string =>
      [...tokens].reduce((text, [token, name]) => text.replace(token, name), value);
    const headers = rawHeaders.flatMap((name, at): [string, string][] =>
      at % 2 === 0 ? [[name, mask(rawHeaders[at + 1] ?? "")]] : [],
    );
    recorded.push({ method, path, headers, body });
    await before(path, recorded.filter((one) => one.path === path).length);
    const forwarded = requestHttp(
      new URL(path, upstream),
      { method, headers: rawHeaders },
      async (answer) => {
        const text = (await buffer(answer)).toString();
        const { attempts = [] } = JSON.parse(text) as { attempts?: { attempt: string }[] };
        for (const { attempt } of attempts) tokens.set(attempt, "<attempt>");
        outgoing.writeHead(answer.statusCode ?? 0, answer.headers).end(text);
      },
    );
    forwarded.on("error", () => outgoing.destroy());
    forwarded.end(body);
  });
  tap.listen(0, "127.0.0.1");
  await once(tap, "listening");
  onTestFinished(() => void (tap.closeAllConnections(), tap.close()));
  const { port } = tap.address() as AddressInfo;
  tokens.set(developmentToken, "<token>").set(`127.0.0.1:${port}`, "<host>");
  return { url: `http://127.0.0.1:${port}`, recorded };
}

/** Starts a program of a guide, and returns what it has printed. */
function startProgram([program = "", ...options]: readonly string[], name: string, source: string) {
  return (server: string): (() => string) => {
    const folder = join(temporaryFolder(), "worker");
    mkdirSync(folder);
    writeFileSync(join(folder, name), source);
    const env = {
      ...{ PATH: process.env["PATH"], HOME: folder },
      ...{ WAYPOST_URL: server, WAYPOST_TOKEN: developmentToken },
    };
    const child = spawn(program, [...options, name], { cwd: folder, env, detached: true });
    let printed = "";
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (chunk: Buffer) => (printed += chunk.toString()));
    onTestFinished(() => void process.kill(-(child.pid ?? 0), "SIGKILL"));
    return () => printed;
  };
}

/** Makes the requests of a recording one after another, and returns the answers. */
function replay(server: string): () => string {
  const answers: string[] = [];
  const names = new Map([
    ["<token>", developmentToken],
    ["<host>", new URL(server).host],
  ]);
  const run = async (): Promise<void> => {
    for (const { method, path, headers, body } of readRecording()) {
      const fill = (value: string): string =>
        [...names].reduce((text, [name, by]) => text.replace(name, by), value);
      const sent = requestHttp(new URL(path, server), { method, setHost: false });
      // Node.js would add this header.
      sent.removeHeader("connection");
      for (const [name, value] of headers) sent.setHeader(name, fill(value));
      sent.end(body);
      const [answer] = (await once(sent, "response")) as [IncomingMessage];
      const text = (await buffer(answer)).toString();
      answers.push(text);
      const { attempts = [] } = JSON.parse(text) as { attempts?: { attempt: string }[] };
      for (const { attempt } of attempts) names.set("<attempt>", attempt);
    }
  };
  void run();
  return () => answers.join("\n");
}

const go = ["go", "run"];
const hasGo = spawnSync(go[0] ?? "", ["version"]).status === 0;
const workers = [
  {
    name: "the worker in Python",
    start: () => startProgram(["python3"], "worker.py", readProgram("pull.md", "worker.py")),
    refused: "HTTP Error 409",
  },
  {
    name: hasGo ? "the worker in Go" : "the recording of the worker in Go",
    start: () => (hasGo ? startProgram(go, "worker.go", readProgram("pull-go.md", "worker.go")) : replay),
    refused: "the attempt has ended",
  },
];

test.each(workers)("$name does its work, and continues after a report that is refused", async (worker) => {
  const server = await startWaypost(["dev", "--port", "0"]);
  expect((await commandsFor(server.url)("pulled", "set", origin)).code).toBe(0);
  const publish = async (body: string): Promise<string> => {
    const headers = { "svc-keep-response": "true" };
    const sent = await ask(server.url, `/v2/publish/${origin}/jobs`, { method: "POST", body, headers });
    return String(sent["messageId"]);
  };
  const first = await publish("first");
  const tap = await startTap(server.url, async (path, count) => {
    // The message is cancelled while the worker works.
    if (path === "/v2/attempts" && count === 1)
      await ask(server.url, `/v2/messages/${first}`, { method: "DELETE" });
  });
  const printed = worker.start()(tap.url);
  await expect.poll(printed).toContain(worker.refused);
  const second = await publish("order 8");
  await untilState(server.url, second, "delivered");
  const { events } = await ask(server.url, `/v2/events?messageId=${second}&state=DELIVERED`);
  expect(atob(String((events as Record<string, unknown>[])[0]?.["responseBody"]))).toBe("ORDER 8");
  await expect.poll(printed).toContain("delivered");
  if (worker.name.includes("in Go")) expect(tap.recorded.slice(0, 4)).toEqual(readRecording());
});

test("the workers are as short as the guide promises", () => {
  const lines = (guide: string, file: string): number =>
    readProgram(guide, file)
      .split("\n")
      .filter((line) => line.trim() !== "").length;
  expect(lines("pull.md", "worker.py")).toBeLessThanOrEqual(20);
  expect(lines("pull-go.md", "worker.go")).toBeLessThanOrEqual(48);
});
