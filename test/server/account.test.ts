import { DatabaseSync } from "node:sqlite";
import { join } from "node:path";
import { statSync } from "node:fs";
import { request } from "undici";
import { describe, expect, test } from "vitest";
import { freshDatabase } from "../postgres.ts";
import { developmentToken, runWaypost, startWaypost, temporaryFolder } from "./waypost.ts";

const variable = (text: string, name: string): string =>
  new RegExp(`^${name}="(.*)"$`, "m").exec(text)?.[1] ?? "";
const statusOf = async (url: string, token: string, method: "GET" | "POST" = "GET"): Promise<number> => {
  const path = method === "GET" ? "/v2/keys" : "/v2/publish/http://127.0.0.1:1/x";
  const { statusCode, body } = await request(`${url}${path}`, {
    method,
    headers: { authorization: `Bearer ${token}`, "svc-delay": "1d" },
  });
  await body.dump();
  return statusCode;
};

/** Runs a command about accounts, and returns its output. */
const asking =
  (where: readonly string[]) =>
  async (...args: string[]): Promise<{ code: number | null; out: string; err: string }> => {
    const { code, out, err } = await runWaypost(["account", ...args, ...where]).ended;
    return { code, out, err };
  };

/** Creates an account and checks what can be done with it. `url` is that of a running server, or null. */
async function expectToWork(ask: ReturnType<typeof asking>, url: string | null): Promise<string> {
  const made = await ask("create", "shop", "--plan", "free", "--retries", "5", "--delay", "1d");
  expect(made).toMatchObject({ code: 0, out: expect.stringMatching(/^# shop$/m) });
  const token = variable(made.out, "WAYPOST_TOKEN");
  const id = variable(made.out, "WAYPOST_ACCOUNT_ID");
  if (url !== null) expect(await statusOf(url, token, "POST")).toBe(200);
  expect((await ask("list")).out).toContain(`${id}  active  free  shop\n`);
  const shown = await ask("show", "shop");
  expect(shown.out).toMatch(/^retries: 5 {2}\(its own\)\ndelay: 86400s {2}\(its own\)\ntimeout: 900s$/m);
  expect(shown.out).toMatch(/^storage-bytes: no limit$/m);
  expect(shown.out).not.toContain(token);
  expect(shown.out).not.toMatch(/read-only/);

  expect(await ask("disable", "shop")).toMatchObject({ code: 0, out: `${id}  passive  free  shop\n` });
  if (url !== null)
    expect([await statusOf(url, token), await statusOf(url, token, "POST")]).toEqual([200, 403]);
  expect(await ask("enable", id)).toMatchObject({ code: 0, out: `${id}  active  free  shop\n` });
  if (url !== null) expect(await statusOf(url, token, "POST")).toBe(200);
  const limited = await ask("limits", id, "--delay", "1h", "--retries", "plan");
  expect(limited.out).toMatch(/^retries: 999\ndelay: 3600s {2}\(its own\)$/m);
  if (url !== null) expect(await statusOf(url, token, "POST")).toBe(412);
  const largest = await ask("limits", id, "--plan", "selfHosted", "--log-retention", "3650d");
  expect(largest.out).toMatch(
    /^dead-letter-retention: as the server\nlog-retention: as the server {2}\(its own\)$/m,
  );
  await ask("limits", id, "--plan", "free");
  const kept = await ask("limits", id, "--log-retention", "plan", "--audit-retention", "1d");
  expect(kept.out, kept.err).toMatch(/^log-retention: 259200s\naudit-retention: 86400s {2}\(its own\)$/m);
  return token;
}

describe("waypost account", () => {
  test(
    "works with and without a running server, which applies changes at once",
    { tags: "long" },
    async () => {
      const data = temporaryFolder();
      const ask = asking(["--data", data]);
      const server = await startWaypost(["start", "--port", "0", "--data", data]);
      const token = await expectToWork(ask, server.url);
      expect(statSync(join(data, "waypost.sock")).mode & 0o077, "other users must have no access").toBe(0);
      server.kill("SIGTERM");
      await server.ended;
      expect((await ask("disable", "shop")).code).toBe(0);
      const again = await startWaypost(["start", "--port", "0", "--data", data]);
      expect([await statusOf(again.url, token), await statusOf(again.url, token, "POST")]).toEqual([
        200, 403,
      ]);
    },
  );

  test(
    "deletes a disabled account with everything it has, and nothing of other accounts",
    { tags: "long" },
    async () => {
      const data = temporaryFolder();
      const ask = asking(["--data", data]);
      const { url } = await startWaypost(["dev", "--port", "0", "--data", data]);
      const { out } = await ask("create", "shop");
      const id = variable(out, "WAYPOST_ACCOUNT_ID");
      const own = variable(out, "WAYPOST_TOKEN");
      const post = async (
        token: string,
        path: string,
        more: { cron?: string; body?: string } = {},
      ): Promise<void> => {
        const cron = more.cron === undefined ? {} : { "svc-cron": more.cron };
        const delay = path.includes("/topics/") ? {} : { "svc-delay": "1d" };
        const headers = { authorization: `Bearer ${token}`, ...delay, ...cron };
        const answer = await request(`${url}${path}`, { method: "POST", headers, body: more.body ?? null });
        expect(answer.statusCode, `${path} ${await answer.body.text()}`).toBe(200);
      };
      for (const token of [own, developmentToken]) {
        await post(token, "/v2/publish/http://127.0.0.1:1/x");
        await post(token, "/v2/enqueue/q/http://127.0.0.1:1/x");
        await post(token, "/v2/schedules/http://127.0.0.1:1/x", { cron: "0 0 1 1 *" });
        await post(token, "/v2/topics/g/endpoints", { body: '{"endpoints":[{"url":"http://127.0.0.1:1"}]}' });
        await post(token, "/v2/trigger/http://127.0.0.1:1/flow");
      }
      expect(await ask("delete", "shop")).toMatchObject({
        code: 2,
        err: expect.stringContaining(`waypost account disable ${id}`),
      });
      await ask("disable", "shop");
      expect(await ask("delete", "shop")).toMatchObject({ code: 0, out: `${id}  deleted  shop\n` });
      expect(await statusOf(url, own)).toBe(401);
      expect((await ask("list")).out).not.toContain(id);
      expect((await runWaypost(["credentials", "--data", data]).ended).out).not.toContain(id);
      const database = new DatabaseSync(join(data, "waypost.db"), { readOnly: true });
      const counts = (account: string): number[] =>
        ["messages", "schedules", "url_groups", "active_runs", "limiters"].map((table) =>
          Number(
            database.prepare(`select count(*) as count from ${table} where account = ?`).get(account)?.[
              "count"
            ],
          ),
        );
      expect(counts(id)).toEqual([0, 0, 0, 0, 0]);
      expect(counts("defaultUser")).toEqual([3, 1, 1, 1, 1]);
      database.close();
      expect((await ask("create", "shop")).code).toBe(0);
    },
  );

  test("deletes the last account, and no other one is created", { tags: "long" }, async () => {
    const data = temporaryFolder();
    const ask = asking(["--data", data]);
    const start = () => startWaypost(["start", "--port", "0", "--data", data]);
    const stopped = async (server: Awaited<ReturnType<typeof start>>) => (
      server.kill("SIGTERM"),
      await server.ended
    );
    const first = await start();
    const { out: credentials } = await runWaypost(["credentials", "--data", data]).ended;
    const id = variable(credentials, "WAYPOST_ACCOUNT_ID");
    await ask("disable", id);
    expect(await ask("delete", id)).toMatchObject({ code: 0 });
    await stopped(first);
    // As long afterwards, when only its row is left.
    const database = new DatabaseSync(join(data, "waypost.db"));
    database.exec(
      "delete from audit; delete from log; delete from usage; " +
        "update accounts set detail = json_set(detail, '$.deletedAt', 0)",
    );
    database.close();
    for (let turn = 0; turn < 2; turn++) {
      const { out, err } = await stopped(await start());
      expect(out).not.toContain("WAYPOST_TOKEN");
      expect(err).toContain("all accounts were deleted");
      expect((await runWaypost(["credentials", "--data", data]).ended).out.trim()).toBe("");
    }
    const made = await ask("create", "shop");
    const last = await start();
    expect(await statusOf(last.url, variable(made.out, "WAYPOST_TOKEN"))).toBe(200);
    expect((await stopped(last)).err).not.toContain("all accounts were deleted");
  });

  test("works after a server was killed", { tags: "long" }, async () => {
    const data = temporaryFolder();
    const server = await startWaypost(["start", "--port", "0", "--data", data]);
    server.kill("SIGKILL");
    await server.ended;
    await expectToWork(asking(["--data", data]), null);
    const again = await startWaypost(["start", "--port", "0", "--data", data]);
    expect((await asking(["--data", data])("list")).out).toContain("shop");
    expect(again.url).toContain("http");
  });

  test("works on PostgreSQL, and servers apply changes at once", { tags: "long" }, async () => {
    const where = ["--database-url", await freshDatabase()];
    const server = await startWaypost(["start", "--port", "0", ...where]);
    await expectToWork(asking(where), server.url);
  });

  test("reports what it cannot do with exit code 2", async () => {
    const data = temporaryFolder();
    const ask = asking(["--data", data]);
    expect(await ask("list")).toMatchObject({
      code: 2,
      err: expect.stringContaining("no store found"),
    });
    await startWaypost(["dev", "--port", "0", "--data", data]);
    for (const [args, said] of [
      [["show", "nobody"], "nobody: account does not exist"],
      [["create", "testUser1"], "testUser1: an account with this name exists"],
      [["create", "a:b"], "name: invalid; use 1 to 100 characters"],
      [["create", "a", "--plan", "huge"], "--plan: huge is not a plan; use free, paid"],
      [["limits", "testUser1", "--retries", "many"], "--retries: many is invalid; use a whole number"],
      [["limits", "testUser1", "--delay", "soon"], "--delay: soon is invalid; use a duration"],
      [
        ["limits", "testUser1", "--log-retention", "59s"],
        "--log-retention: 59s is too short; use 60s or more",
      ],
      [["limits", "testUser1", "--speed", "1"], "--speed"],
    ] as const) {
      expect(await ask(...args), args.join(" ")).toMatchObject({
        code: 2,
        err: expect.stringContaining(said),
      });
    }
  });

  test("requires stopping a server whose folder has a long name", async () => {
    const data = join(temporaryFolder(), "x".repeat(100));
    await startWaypost(["dev", "--port", "0", "--data", data]);
    const { code, err } = await asking(["--data", data])("list");
    expect({ code, err }).toEqual({
      code: 2,
      err: expect.stringMatching(/in use by a server that does not respond to commands .*stop the server/),
    });
  });
});
