import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { createServer } from "node:http";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { connectToApi, tolerateOutages } from "../../src/client/api.ts";
import { callApi } from "../../src/client/connection.ts";
import { followJob } from "../../src/client/jobProgress.ts";
import { CommandFailed } from "../../src/client/terminal/commandFailed.ts";
import { developmentToken, startDestination } from "../server/waypost.ts";
import { commandsFor, openCommands } from "./startCommand.ts";

/** Starts a server that responds as it likes. */
async function startServer(respond: (response: ServerResponse) => void): Promise<string> {
  const server = createServer((_, response) => respond(response)).listen(0, "127.0.0.1");
  onTestFinished(() => void (server.closeAllConnections(), server.close()));
  await once(server, "listening");
  const address = server.address();
  return `http://127.0.0.1:${address && typeof address === "object" ? address.port : 0}`;
}

describe("a response without the fields that a command needs", () => {
  test.each(["", "{}", "null", '"hi"', "[{}]", '{"messages":{},"runs":[1]}'])(
    "%j is never a success",
    async (body) => {
      const server = await startDestination(() => ({ status: 200, body }));
      const { commands, run } = openCommands(server.url);
      // These ask no server. `apply` first reads its file.
      const offline = new Set(["login", "logout", "outbox sql", "apply"]);
      const tested = commands.filter(({ words }) => !offline.has(words.join(" ")));
      expect(tested.length).toBeGreaterThan(30);
      for (const { words, argumentCount, needed } of tested) {
        const ofObjects = ["queues list", "flow-control list", "groups list", "schedules list"];
        if (body === "[{}]" && ofObjects.includes(words.join(" "))) continue;
        const isBulk = /^(messages cancel|dlq (retry|delete)|runs (resume|restart|cancel))$/.test(
          words.join(" "),
        );
        const given = /^(publish|trigger)$/.test(words[0] ?? "") ? "https://example.com" : "x";
        for (const args of [argumentCount > 0 ? [given] : [], ...(isBulk ? [["--all", "--yes"]] : [])]) {
          const error = await run(...words, ...args, ...needed);
          expect(error, `${words.join(" ")} ${args.join(" ")}`).toBeInstanceOf(CommandFailed);
          expect(error).toMatchObject({
            exitCode: 1,
            message: expect.stringContaining("this is not a response of Waypost"),
          });
        }
      }
    },
  );
});

describe("a response that does not end", () => {
  const request = { path: "/v2/queues", needs: { each: {} } } as const;

  test("is given up, though a byte arrives now and then", async () => {
    const url = await startServer((response) => {
      const timer = setInterval(() => void response.write(" "), 20);
      response.on("close", () => clearInterval(timer));
    });
    const time = { silent: 60_000, whole: 200 };
    await expect(callApi({ url, token: "x" }, request, time)).rejects.toMatchObject({
      exitCode: 5,
      message: expect.stringContaining("no complete response within 0.2 s"),
    });
  });

  test("is given up if nothing arrives", async () => {
    const url = await startServer((response) => void response.write(" "));
    const time = { silent: 100, whole: 60_000 };
    await expect(callApi({ url, token: "x" }, request, time)).rejects.toMatchObject({
      exitCode: 5,
      message: expect.stringContaining("no response within 0.1 s"),
    });
  });

  test("as pages without rows is given up", async () => {
    const server = await startDestination(() => ({ status: 200, body: '{"messages":[],"cursor":"same"}' }));
    expect(await openCommands(server.url).run("messages")).toMatchObject({
      exitCode: 5,
      message: expect.stringContaining("without an end"),
    });
    expect(server.arrivals).toHaveLength(2);
  });

  test("as pages with ever new cursors is given up", { tags: "long" }, async () => {
    let page = 0;
    const server = await startDestination(() => ({
      status: 200,
      body: JSON.stringify({ messages: [], cursor: String(++page) }),
    }));
    expect(await openCommands(server.url).run("messages")).toMatchObject({ exitCode: 5 });
    expect(server.arrivals).toHaveLength(2_000);
  });

  test("a limit that is too large is refused", async () =>
    expect(await openCommands("http://127.0.0.1:1").run("messages", "--limit", "100001")).toMatchObject({
      exitCode: 2,
      message: expect.stringContaining("from 0 to 100000"),
    }));
});

test("a warning of the server is printed once for requests in turn, without control characters", async () => {
  const noted = vi.spyOn(process.stderr, "write").mockReturnValue(true);
  onTestFinished(() => noted.mockRestore());
  let warning = "requests: 12 made today\u0080; 10 are included";
  const url = await startServer((response) =>
    response.writeHead(200, { "Waypost-Warning": warning }).end('{"ok":true}'),
  );
  const call = (): Promise<unknown> => callApi({ url, token: "x" }, { path: "/v2/x", needs: { one: {} } });
  await call();
  await call();
  warning = "count: 2000 exceeds the limit of 1000";
  await call();
  expect(noted.mock.calls).toEqual([
    ["waypost: warning: requests: 12 made today\\u{80}; 10 are included\n"],
    ["waypost: warning: count: 2000 exceeds the limit of 1000\n"],
  ]);
});

test("a list of 200,000 entries is printed", { tags: "long" }, async () => {
  const rows = Array.from({ length: 200_000 }, (_, at) => ({ name: `q${at}`, lag: at }));
  const body = JSON.stringify(rows);
  const server = await startDestination(() => ({ status: 200, body }));
  const run = commandsFor(server.url);
  for (const args of [["queues"], ["queues", "--json"]]) {
    const { code, out, err } = await run(...args);
    expect({ code, err }).toEqual({ code: 0, err: "" });
    expect(out).toContain("q199999");
  }
});

describe("a server that stays away", () => {
  test("ends the wait for a job, and the command says how to wait again", async () => {
    const said = vi.spyOn(process.stderr, "write").mockReturnValue(true);
    onTestFinished(() => said.mockRestore());
    const environment = { WAYPOST_URL: "http://127.0.0.1:1", WAYPOST_TOKEN: developmentToken };
    await expect(
      followJob(connectToApi({ environment }), "job_1", { flags: {}, patience: 0 }),
    ).rejects.toMatchObject({ exitCode: 5, message: expect.stringContaining("connection refused") });
    expect(said.mock.calls.flat().join("")).toContain('"waypost jobs wait job_1" shows it again');
  });

  test("is reported once, and again after it was there", async () => {
    const said = vi.spyOn(process.stderr, "write").mockReturnValue(true);
    onTestFinished(() => said.mockRestore());
    const attempt = tolerateOutages();
    const fail = (): Promise<void> => Promise.reject(new CommandFailed("unavailable", "away"));
    for (let n = 0; n < 3; n++) await attempt(fail);
    expect(said).toHaveBeenCalledTimes(1);
    await attempt(() => Promise.resolve());
    await attempt(fail);
    expect(said).toHaveBeenCalledTimes(2);
    await expect(attempt(() => Promise.reject(new CommandFailed("forbidden", "no")))).rejects.toThrow("no");
  });
});
