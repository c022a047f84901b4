import { join } from "node:path";
import { readFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import type { ServerAdmin } from "../../src/server/accountAdmin.ts";
import { connectToServerAdmin, listenForAdmin } from "../../src/server/accountAdmin.ts";
import { developmentToken, runWaypost, startWaypost, temporaryFolder } from "./waypost.ts";

const silence = /in use by a server that has sent nothing for 5 s, .*\bcontinue or restart it\b/;

/** Starts a server with its own data, and stops its process as a debugger does. */
async function startSuspended() {
  const data = join(temporaryFolder(), "data");
  const server = await startWaypost(["dev", "--hold", "--port", "0", "--data", data]);
  server.kill("SIGSTOP");
  return { server, data };
}

test("every tool gives up on a suspended server, and the server later drops the command", async () => {
  const { server, data } = await startSuspended();
  const keys = readFileSync(join(data, "keys"), "utf8");
  const run = (...args: string[]) => runWaypost([...args, "--data", data]).ended;
  const commands = [
    ["account", "list"],
    ["account", "create", "shop"],
    ["token", "list", "defaultUser"],
    ["keys", "show"],
    ["keys", "rotate"],
    ["unhold"],
  ];
  const credentials = run("credentials", "defaultUser");
  const diagnosis = run("doctor");
  const given = await Promise.all(commands.map((command) => run(...command)));
  for (const [at, { code, out, err }] of given.entries()) {
    expect({ code, out }, `${commands[at]?.join(" ")}: ${err}`).toEqual({ code: 2, out: "" });
    expect(err).toMatch(silence);
    const isChange = commands[at]?.[0] === "unhold";
    const isRead = ["list", "show"].includes(commands[at]?.[1] ?? "");
    if (isChange || isRead) expect(err.includes("took effect"), err).toBe(isChange);
  }
  expect(readFileSync(join(data, "keys"), "utf8"), "no key is added that nothing uses").toBe(keys);

  const { code, out } = await credentials;
  expect(code).toBe(0);
  expect(out).toContain(`WAYPOST_TOKEN="${developmentToken}"`);
  expect(out).toMatch(/^# the running server does not respond; the URL is made of --host and --port$/m);

  const { code: verdict, out: findings } = await diagnosis;
  expect(verdict).toBe(1);
  expect(findings).toMatch(/^problem +server +.*has sent nothing for 5 s/m);
  expect(findings).not.toMatch(/no server (runs|was found)/);

  server.kill("SIGCONT");
  const listed = await run("account", "list");
  expect(listed).toMatchObject({ code: 0 });
  expect(listed.out).not.toContain("shop");
  // The hold is the first thing that the dropped command would have ended.
  expect(await run("unhold")).toMatchObject({ code: 0, out: "deliveries are no longer held\n" });
});

test("a command waits for a server that works on it for longer than that", { tags: "long" }, async () => {
  const folder = temporaryFolder();
  const sealAgain = () => pause(7_000, 12);
  const server = await listenForAdmin(folder, { sealAgain } as unknown as ServerAdmin);
  onTestFinished(() => void server?.close());
  expect(await connectToServerAdmin(folder).sealAgain()).toBe(12);
});
