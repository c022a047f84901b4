import { once } from "node:events";
import { createServer } from "node:net";
import { join } from "node:path";
import { existsSync } from "node:fs";
import { request } from "undici";
import { describe, expect, onTestFinished, test } from "vitest";
import { runWaypost, startWaypost, temporaryFolder } from "./waypost.ts";

const password = "the operator of this server";
const authorization = `Basic ${Buffer.from(`operator:${password}`).toString("base64")}`;
const secret = { WAYPOST_OPERATOR_PASSWORD: password };

async function takenPort(): Promise<string> {
  const taken = createServer().listen(0, "127.0.0.1");
  onTestFinished(() => void taken.close());
  await once(taken, "listening");
  const address = taken.address();
  return String(address && typeof address === "object" ? address.port : 0);
}

const ask = async (url: string, more: { method?: "POST"; body?: string; authorization?: string } = {}) => {
  const { method = "GET", body, authorization: given = authorization } = more;
  const answer = await request(url, {
    method,
    headers: { authorization: given },
    ...(body !== undefined && { body }),
  });
  return { status: answer.statusCode, body: (await answer.body.json()) as Record<string, unknown> };
};

describe("--account-port", () => {
  test("serves the account endpoints, which also stay on --port, and ends with the server", async () => {
    const data = temporaryFolder();
    const server = await startWaypost(
      ["start", "--port", "0", "--account-port", "0", "--data", data],
      secret,
    );
    const accounts = /accounts at (http:[^\s"]+)/.exec(server.out())?.[1] ?? "";
    const made = await ask(`${accounts}/v2/admin/accounts`, { method: "POST", body: '{"name":"shop"}' });
    expect(made).toMatchObject({ status: 200, body: { name: "shop" } });
    expect(await ask(`${server.url}/v2/admin/accounts/shop`)).toMatchObject({
      status: 200,
      body: { id: made.body["id"] },
    });
    const bearer = `Bearer ${String(made.body["token"])}`;
    expect((await ask(`${server.url}/v2/keys`, { authorization: bearer })).status).toBe(200);
    expect((await ask(`${accounts}/v2/keys`, { authorization: bearer })).status).toBe(404);

    // The audit log tells the account who acted, and from where.
    const disabled = await runWaypost(["account", "disable", "shop", "--data", data]).ended;
    expect(disabled.code).toBe(0);
    const { body } = await ask(`${server.url}/v2/audit`, { authorization: bearer });
    expect(body).toMatchObject({
      entries: [
        { action: "account.disable", by: { kind: "commandLine", address: null } },
        { action: "account.create", by: { kind: "operator", address: "127.0.0.1" } },
      ],
    });
    expect(JSON.stringify(body)).not.toContain(password);

    server.kill("SIGTERM");
    const { code, err } = await server.ended;
    expect(code).toBe(0);
    expect(err).not.toContain(password);
    await expect(ask(`${accounts}/v2/health`)).rejects.toThrow(/ECONNREFUSED/);
  });

  test("lists the networks that deliveries come from, with single addresses as networks", async () => {
    const networks = { WAYPOST_SENDS_FROM: "203.0.113.7,198.51.100.0/24,2001:db8::7" };
    const server = await startWaypost(["dev", "--port", "0", "--account-port", "0"], networks);
    const accounts = /accounts at (http:[^\s"]+)/.exec(server.out())?.[1] ?? "";
    expect((await ask(`${accounts}/v2/svc/ipv4`)).body).toEqual([
      "203.0.113.7/32",
      "198.51.100.0/24",
      "2001:db8::7/128",
    ]);
  });

  test("counts failed logins together with the other port", async () => {
    const server = await startWaypost(
      ["start", "--port", "0", "--account-port", "0", "--data", temporaryFolder()],
      secret,
    );
    const accounts = /accounts at (http:[^\s"]+)/.exec(server.out())?.[1] ?? "";
    const wrong = `Basic ${Buffer.from("operator:a wrong password").toString("base64")}`;
    const tryAt = async (url: string, given: string) =>
      (await ask(`${url}/v2/admin/accounts`, { authorization: given })).status;
    for (let at = 0; at < 10; at++) {
      expect(await tryAt(server.url, wrong)).toBe(401);
      expect(await tryAt(accounts, wrong)).toBe(401);
    }
    expect(await tryAt(accounts, wrong)).toBe(429);
    expect(await tryAt(server.url, authorization), "not even a valid one is checked").toBe(429);
  });

  test("that is in use ends the start before anything is created", async () => {
    const port = await takenPort();
    const data = join(temporaryFolder(), "data");
    const { code, err } = await runWaypost(["start", "--port", "0", "--account-port", port, "--data", data])
      .ended;
    expect({ code, err }).toEqual({
      code: 2,
      err: expect.stringMatching(/is already in use; choose another with --account-port/),
    });
    expect(existsSync(data)).toBe(false);
  });

  test.each([
    [
      ["--port", "8123", "--account-port", "8123"],
      {},
      /^waypost: --account-port: 8123 is already used by --port/,
    ],
    [["--account-port", "x"], {}, /^waypost: --account-port: must be a whole number from 0 to 65535/],
    [[], { WAYPOST_ACCOUNT_PORT: "70000" }, /^waypost: WAYPOST_ACCOUNT_PORT: must be/],
    [
      [],
      { WAYPOST_OPERATOR_PASSWORD: "fifteen letters" },
      /^waypost: WAYPOST_OPERATOR_PASSWORD: must be a password of 16 to 1000 characters\n$/,
    ],
    [["--operator-password", password], {}, /unknown option/],
  ])("%o %o is refused", async (flags, environment, error) => {
    const data = join(temporaryFolder(), "data");
    const { code, err } = await runWaypost(["start", ...flags, "--data", data], environment).ended;
    expect({ code, err }).toEqual({ code: 2, err: expect.stringMatching(error) });
  });
});
