import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer } from "node:http";
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import type { Api } from "../../src/client/api.ts";
import { connectToApi } from "../../src/client/api.ts";
import { readLines } from "../../src/client/connection.ts";
import { followLog } from "../../src/client/logTail.ts";
import { readLine } from "../../src/client/terminal/fields.ts";
import { second } from "../../src/engine/core/values/time.ts";
import { findFreePort } from "../freePort.ts";
import { developmentToken, startDestination, startWaypost, temporaryFolder } from "../server/waypost.ts";
import { commandsFor, startCommand } from "./startCommand.ts";

type Respond = (response: ServerResponse, request: IncomingMessage) => void;

/** The followers of this process. They end when their server has ended. */
const followers: Promise<unknown>[] = [];

/** Starts a server that responds as it likes: to the tail, and to other requests. */
async function startHostile(tail: Respond, log: Respond = (response) => void response.end('{"logs":[]}')) {
  const server = createServer((request, response) =>
    (request.url?.startsWith("/v2/logs/tail") ? tail : log)(response, request),
  );
  server.listen(0, "127.0.0.1");
  onTestFinished(async () => {
    server.closeAllConnections();
    server.close();
    await Promise.all(followers.splice(0));
    vi.restoreAllMocks();
  });
  await once(server, "listening");
  const address = server.address();
  return `http://127.0.0.1:${address && typeof address === "object" ? address.port : 0}`;
}

const apiOf = (url: string): Api =>
  connectToApi({ environment: { WAYPOST_URL: url, WAYPOST_TOKEN: developmentToken } });

const line = (value: object): string => `${JSON.stringify(value)}\n`;
const entryAt = (time: number, messageId = `msg_${time}`): object => ({ time, messageId, state: "CREATED" });
const fast = { settle: 0, firstPause: 1, longestPause: 4, steady: 30 * second, patience: 0 };

/** Follows the log of a server in this process. `shown` and `notes` have what was shown. */
function followHere(url: string, options: Partial<Parameters<typeof followLog>[1]> = {}, times = fast) {
  const notes = vi.spyOn(process.stderr, "write").mockReturnValue(true);
  const shown: string[] = [];
  const followed = {
    query: {},
    seen: null,
    show: (entry: Readonly<Record<string, unknown>>) => void shown.push(readLine(entry, "messageId")),
    ...options,
  };
  const ended = followLog(apiOf(url), followed, times).catch((error: unknown) => error);
  followers.push(ended);
  return { shown, ended, notes: () => notes.mock.calls.flat().join("") };
}

/** Reads a stream to its end. */
async function readAll(url: string, silent?: number): Promise<string[]> {
  const read: string[] = [];
  const server = { url, token: developmentToken };
  for await (const text of readLines(server, { path: "/v2/logs/tail" }, silent)) read.push(text);
  return read;
}

describe("the lines of a stream", () => {
  test("are read in any pieces, and half a line at the end is left out", async () => {
    const url = await startHostile(async (response) => {
      const bytes = Buffer.from('{"a":"é"}\n{"b":1}\n\n{"c":');
      for (const byte of bytes) {
        response.write(Buffer.from([byte]));
        await new Promise((resolve) => setImmediate(resolve));
      }
      response.end();
    });
    expect(await readAll(url)).toEqual(['{"a":"é"}', '{"b":1}', ""]);
  });

  test.each<[string, Respond]>([
    ["no response", () => undefined],
    ["no line", (response) => void response.write("{")],
    [
      "a byte now and then",
      (response) => {
        const timer = setInterval(() => void response.write(" "), 10);
        response.on("close", () => clearInterval(timer));
      },
    ],
    ["a refusal without an end", (response) => void response.writeHead(503).write("{")],
  ])("are given up after %s for too long", async (_, respond) => {
    await expect(readAll(await startHostile(respond), 100)).rejects.toMatchObject({
      exitCode: 5,
      message: expect.stringContaining("no line within 0.1 s"),
    });
  });

  test("are given up if one has no end", async () => {
    const url = await startHostile((response) => {
      const write = (): void => {
        while (!response.destroyed && response.write("x".repeat(65_536)));
      };
      response.on("drain", write);
      write();
    });
    await expect(readAll(url)).rejects.toMatchObject({
      exitCode: 1,
      message: expect.stringContaining("a line exceeds 2097152 characters"),
    });
  });

  test("may take the reader longer than a server may be silent", async () => {
    const url = await startHostile((response) => void response.end("1\n2\n"));
    const read: string[] = [];
    for await (const text of readLines({ url, token: "x" }, { path: "/v2/logs/tail" }, 1_000)) {
      read.push(text);
      await new Promise((resolve) => setTimeout(resolve, 1_200));
    }
    expect(read).toEqual(["1", "2"]);
  });

  test("end with the reason if the connection breaks", async () => {
    const url = await startHostile((response) => {
      response.write("1\n");
      response.socket?.end();
    });
    await expect(readAll(url)).rejects.toMatchObject({
      exitCode: 5,
      message: expect.stringContaining("the connection was closed"),
    });
  });
});

describe("a log that is followed", () => {
  test.each([
    ["<html>\n", "a line is not a JSON object"],
    ["[1]\n", "a line is not a JSON object"],
    ["{}\n", 'its first line has no field "heartbeat"'],
    [line({ heartbeat: 5 }) + "oops\n", "a line is not a JSON object"],
  ])("is not that of another program, which sends %j", async (text, why) => {
    const { ended } = followHere(await startHostile((response) => void response.write(text)));
    expect(await ended).toMatchObject({ exitCode: 1, message: expect.stringContaining(why) });
  });

  test.each([
    [401, 4],
    [403, 4],
    [400, 1],
    [404, 3],
    [503, 5],
  ])("ends if the server refuses it with %i, with code %i", async (status, exitCode) => {
    const url = await startHostile((response) => void response.writeHead(status).end('{"error":"not now"}'));
    expect(await followHere(url).ended).toMatchObject({ exitCode });
  });

  test("ends if the server stays away, or always closes the stream before the first line", async () => {
    expect(await followHere("http://127.0.0.1:1").ended).toMatchObject({ exitCode: 5 });
    const url = await startHostile((response) => void response.end());
    expect(await followHere(url).ended).toMatchObject({
      exitCode: 5,
      message: expect.stringContaining("the stream ended"),
    });
  });

  test("shows what it missed, in order and once, before what the new stream sends", async () => {
    let connections = 0;
    const asked: URLSearchParams[] = [];
    const url = await startHostile(
      (response, request) => {
        expect(request.url).toBe("/v2/logs/tail?state=CREATED");
        connections++;
        if (connections === 1)
          response.end(line({ heartbeat: 100_000 }) + line(entryAt(100_001)) + line({ ended: "bye\u001b" }));
        else if (connections === 2)
          response.write(
            line({ heartbeat: 100_004 }) + line(entryAt(100_004)) + line(entryAt(100_005)) + '{"half',
          );
      },
      (response, request) => {
        asked.push(new URL(request.url ?? "", "http://x").searchParams);
        // The first stream missed nothing. The second missed two entries, in two pages.
        if (connections === 1) return response.end('{"logs":[]}');
        const isFirstPage = !asked.at(-1)?.has("cursor");
        const page = isFirstPage
          ? { logs: [entryAt(99_999), entryAt(100_001), entryAt(100_002)], cursor: "2" }
          : { logs: [entryAt(100_003), entryAt(100_004)] };
        return response.end(JSON.stringify(page));
      },
    );
    const { shown, notes } = followHere(url, { query: { state: ["CREATED"] } });
    await expect.poll(() => shown.at(-1)).toBe("msg_100005");
    expect(shown).toEqual([1, 2, 3, 4, 5].map((n) => `msg_10000${n}`));
    expect(asked.map((query) => [query.get("fromDate"), query.get("order"), query.get("state")])).toEqual([
      ["100001", "earliestFirst", "CREATED"],
      ["100001", "earliestFirst", "CREATED"],
      ["100001", "earliestFirst", "CREATED"],
    ]);
    expect(notes()).toBe(String.raw`waypost: bye\u{1b}; connecting again` + "\n");
  });

  test("goes back a few seconds for what it missed, but not behind what was not shown at first", async () => {
    const asked: string[] = [];
    let connections = 0;
    const url = await startHostile(
      (response) => {
        connections++;
        if (connections === 1) response.end(line({ heartbeat: 90_000 }));
        else response.write(line({ heartbeat: 95_000 }));
      },
      (response, request) => {
        asked.push(new URL(request.url ?? "", "http://x").searchParams.get("fromDate") ?? "");
        response.end(JSON.stringify({ logs: [entryAt(50_000, "old"), entryAt(90_000, "late")] }));
      },
    );
    const entries = [entryAt(50_000, "shown"), entryAt(60_000, "newest")] as Record<string, unknown>[];
    const { shown } = followHere(url, { seen: { entries, isCut: true } });
    await expect.poll(() => asked).toEqual(["55000", "85000"]);
    await expect.poll(() => shown).toEqual(["late"]);
  });

  test("reports entries that were left out, and never more than once what a page repeats", async () => {
    const gap = { dropped: 12, fromDate: 5, toDate: 9 };
    const url = await startHostile((response) => {
      response.write(line({ heartbeat: 1 }) + line(gap) + line({ ...gap, dropped: null }));
      response.write(line(entryAt(10)) + line(entryAt(10)));
    });
    const { shown, notes } = followHere(url);
    await expect.poll(() => shown).toEqual(["msg_10"]);
    const prints = '"waypost logs --since 5 --until 9" prints them';
    expect(notes()).toBe(
      `waypost: 12 entries were left out; ${prints}\nwaypost: entries were left out; ${prints}\n`,
    );
  });

  test.each([
    ['{"logs":[],"cursor":"same"}', "without an end"],
    ["<html>", "without a response of Waypost"],
  ])("fails if what it missed is %j", async (body, why) => {
    const url = await startHostile(
      (response) => void response.write(line({ heartbeat: 1 })),
      (response) => void response.end(body),
    );
    expect(await followHere(url).ended).toMatchObject({ message: expect.stringContaining(why) });
  });
});

describe("waypost logs --follow", () => {
  const environmentOf = (url: string): NodeJS.ProcessEnv => ({
    WAYPOST_URL: url,
    WAYPOST_TOKEN: developmentToken,
  });
  const publishAt = async (url: string, destination: string): Promise<void> => {
    const headers = { authorization: `Bearer ${developmentToken}` };
    const { ok } = await fetch(`${url}/v2/publish/${destination}`, { method: "POST", headers });
    expect(ok).toBe(true);
  };

  test(
    "loses and repeats nothing while the server is killed and started again",
    { tags: "long" },
    async () => {
      const data = temporaryFolder();
      const port = String(await findFreePort());
      const first = await startWaypost(["dev", "--port", port, "--data", data]);
      const destination = await startDestination();
      // A clock that is ahead must make no difference.
      const skew = "data:text/javascript,globalThis.n=Date.now;Date.now=()=>n()+3600000";
      const following = startCommand(["logs", "--follow", "--json", "--limit", "0", "--state", "CREATED"], {
        ...environmentOf(first.url),
        NODE_OPTIONS: `--import ${skew}`,
      });
      // The stream has begun if one of these is shown.
      let n = 0;
      while (!following.out().includes("messageId")) {
        expect(following.err()).toBe("");
        await publishAt(first.url, `${destination.url}/${++n}`);
        await new Promise((resolve) => setTimeout(resolve, 200));
      }
      const shownFirst = Number(/:\d+\/(\d+)"/.exec(following.out())?.[1]);
      first.kill("SIGKILL");
      await first.ended;
      await expect.poll(following.err).toContain("connecting again");
      const second = await startWaypost(["dev", "--port", port, "--data", data]);
      for (let more = 0; more < 20; more++) await publishAt(second.url, `${destination.url}/${++n}`);
      await expect.poll(following.out).toContain(`${destination.url}/${n}"`);
      const lines = following.out().trim().split("\n");
      const paths = lines.map((text) =>
        Number(new URL((JSON.parse(text) as { url: string }).url).pathname.slice(1)),
      );
      expect(paths).toEqual(Array.from({ length: n - shownFirst + 1 }, (_, at) => shownFirst + at));
    },
  );

  test("ends with its reader, and with 130 in a shell after Ctrl-C", { tags: "long" }, async () => {
    const { url } = await startWaypost(["dev", "--port", "0"]);
    const run = commandsFor(url);
    await run("publish", "https://example.com/one", "--delay", "1h");
    const bin = fileURLToPath(new URL("../../bin/waypost.js", import.meta.url));
    const inShell = async (script: string): Promise<{ out: string; code: number | null }> => {
      const env = { PATH: process.env.PATH, NODE: process.execPath, BIN: bin, ...environmentOf(url) };
      const child = spawn("bash", ["-c", script], { env, stdio: ["ignore", "pipe", "inherit"] });
      onTestFinished(() => void child.kill("SIGKILL"));
      let out = "";
      child.stdout.on("data", (chunk: Buffer) => (out += chunk.toString()));
      const ended = once(child, "close");
      const timer = setInterval(() => void run("publish", "https://example.com/more", "--delay", "1h"), 1000);
      const [code] = (await ended) as [number | null];
      clearInterval(timer);
      return { out, code };
    };
    const piped = await inShell('"$NODE" "$BIN" logs --follow | head -1; echo "${PIPESTATUS[0]}"');
    expect(piped).toEqual({ code: 0, out: expect.stringMatching(/CREATED .*\n0\n$/) });
    const stopped = await inShell(
      'timeout --preserve-status -s INT 3 "$NODE" "$BIN" logs --follow; echo "$?"',
    );
    expect(stopped.out).toMatch(/\n130\n$/);
  });
});
