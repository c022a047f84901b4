import { readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { request } from "undici";
import { expect, test } from "vitest";
import { freshDatabase } from "../postgres.ts";
import {
  readCredentials,
  developmentToken,
  runWaypost,
  startDestination,
  startWaypost,
  temporaryFolder,
} from "../server/waypost.ts";

const run = async (...args: string[]): Promise<{ code: number | null; out: string; err: string }> => {
  const { code, out, err } = await runWaypost(args).ended;
  return { code, out, err };
};
const statusOf = async (url: string, token: string, publishPath?: string): Promise<number> => {
  const { statusCode, body } = await request(`${url}${publishPath ?? "/v2/keys"}`, {
    method: publishPath === undefined ? "GET" : "POST",
    headers: { authorization: `Bearer ${token}` },
  });
  await body.dump();
  return statusCode;
};
const variable = (text: string, name: string): string =>
  new RegExp(`^${name}="(.*)"$`, "m").exec(text)?.[1] ?? "";

test(
  "the first start creates keys that encrypt secrets, and a running server can rotate them",
  { tags: "long" },
  async () => {
    const data = temporaryFolder();
    // Left behind by a first start that was killed while it wrote the keys.
    writeFileSync(join(data, "keys.new"), "half of a key");
    const where = ["--data", data];
    const server = await startWaypost(["start", "--port", "0", "--egress-allow", "127.0.0.0/8", ...where]);
    const credentials = await readCredentials(...where);
    const [token, key, password] = ["TOKEN", "CURRENT_SIGNING_KEY", "PASSWORD"].map((name) =>
      variable(credentials, `WAYPOST_${name}`),
    );
    expect(statSync(join(data, "keys")).mode & 0o077, "other users must not read them").toBe(0);
    const stored = (): string =>
      readdirSync(data, { withFileTypes: true })
        .flatMap((file) => (file.isFile() ? readFileSync(join(data, file.name), "latin1") : []))
        .join("");
    const inClear = (): string[] =>
      [token, key, password].flatMap((secret) =>
        secret !== undefined && stored().includes(secret) ? [secret] : [],
      );
    expect(inClear()).toEqual([]);

    expect(await run("keys", "show", ...where)).toMatchObject({
      code: 0,
      out: "1  1 rows  (encrypts new data)\n",
    });
    expect(await run("keys", "rotate", ...where)).toMatchObject({
      code: 0,
      out: "1 rows encrypted again, with key 2\n",
    });
    expect(await run("keys", "forget", "2", ...where)).toMatchObject({
      code: 2,
      err: expect.stringContaining("this key encrypts new data"),
    });
    expect(await run("keys", "forget", "1", ...where)).toMatchObject({ code: 0 });
    expect(await statusOf(server.url, token ?? "")).toBe(200);
    const destination = await startDestination();
    expect(await statusOf(server.url, token ?? "", `/v2/publish/${destination.url}`)).toBe(200);
    await destination.until((arrivals) => arrivals.length === 1);
    expect(inClear()).toEqual([]);
    server.kill("SIGTERM");
    await server.ended;
    expect((await run("credentials", ...where)).out).toContain(`WAYPOST_TOKEN="${token}"`);
    expect((await run("keys", "show", ...where)).out).toBe("2  1 rows  (encrypts new data)\n");

    const keys = join(data, "keys");
    renameSync(keys, join(data, "elsewhere"));
    for (const args of [["start", "--port", "0"], ["credentials"], ["account", "list"]])
      expect(await run(...args, ...where), args.join(" ")).toMatchObject({
        code: 2,
        err: expect.stringMatching(/^waypost: .*keys/),
      });
    writeFileSync(keys, (await run("keys", "new", "2")).out);
    expect(await run("start", "--port", "0", ...where)).toMatchObject({
      code: 2,
      err: expect.stringContaining("key 2 cannot decrypt"),
    });
    rmSync(keys);
    renameSync(join(data, "elsewhere"), keys);
    const again = await startWaypost(["start", "--port", "0", ...where]);
    expect(await statusOf(again.url, token ?? "")).toBe(200);
  },
);

test(
  "keys for PostgreSQL are a setting; without it secrets are unencrypted, with a warning",
  { tags: "long" },
  async () => {
    const where = ["--database-url", await freshDatabase()];
    const bare = await startWaypost(["dev", "--port", "0", ...where]);
    expect(await statusOf(bare.url, developmentToken)).toBe(200);
    expect((await run("keys", "show", ...where)).out).toBe("unencrypted  4 rows\n");
    expect(await run("keys", "reseal", ...where)).toMatchObject({
      code: 2,
      err: expect.stringContaining("WAYPOST_KEYS: not set"),
    });
    bare.kill("SIGTERM");
    expect((await bare.ended).err).toContain("stored unencrypted");

    const keys = (await run("keys", "new")).out.trim();
    const server = await startWaypost(["dev", "--port", "0", ...where], { WAYPOST_KEYS: keys });
    expect(await run("keys", "reseal", ...where, "--keys", keys)).toMatchObject({
      code: 0,
      out: "4 rows encrypted again, with key 1\n",
    });
    expect(await statusOf(server.url, developmentToken)).toBe(200);
    expect(await run("keys", "rotate", ...where, "--keys", keys)).toMatchObject({
      code: 2,
      err: expect.stringContaining("change them by hand: 1."),
    });
    expect(await run("credentials", ...where)).toMatchObject({
      code: 2,
      err: expect.stringContaining("set WAYPOST_KEYS"),
    });
    expect((await run("credentials", "defaultUser", ...where, "--keys", keys)).out).toContain(
      developmentToken,
    );
    expect(await run("start", "--port", "0", ...where)).toMatchObject({
      code: 2,
      err: expect.stringContaining("are not set"),
    });
    expect(await run("start", "--port", "0", ...where, "--keys", "1:secret")).toMatchObject({
      code: 2,
      err: expect.not.stringContaining("secret\n"),
    });
  },
);

test("tokens are created, listed and revoked while a server runs", { tags: "long" }, async () => {
  const where = ["--data", temporaryFolder()];
  const { url } = await startWaypost(["dev", "--port", "0", ...where]);
  const made = await run(
    "token",
    "create",
    "testUser1",
    "--verbs",
    "publish,read",
    "--to",
    "http://127.0.0.1:1/*",
    "queue:a",
    "--expires",
    "30d",
    ...where,
  );
  expect(made).toMatchObject({
    code: 0,
    out: expect.stringMatching(/^# tok_\w+ {2}publish,read {2}http:\/\/127\.0\.0\.1:1\/\* queue:a {2}ends 2/),
  });
  const [, id = ""] = /^# (tok_\w+)/.exec(made.out) ?? [];
  const token = made.out.trim().split("\n")[1] ?? "";
  expect(await statusOf(url, token)).toBe(200);
  expect(await statusOf(url, token, "/v2/enqueue/a/http://127.0.0.1:1/x")).toBe(200);
  expect(await statusOf(url, token, "/v2/enqueue/b/http://127.0.0.1:1/x")).toBe(403);
  const listed = await run("token", "list", "testUser1", ...where);
  expect(listed.out).toContain(id);
  expect(listed.out).not.toContain(token);
  expect(await run("token", "revoke", "testUser2", id, ...where)).toMatchObject({
    code: 2,
    err: expect.stringContaining("token does not exist"),
  });
  expect(await run("token", "revoke", "testUser1", id, ...where)).toMatchObject({ code: 0 });
  expect(await statusOf(url, token)).toBe(401);
  for (const [args, said] of [
    [["--verbs", "all"], '--verbs: "all" is unknown; use'],
    [["--verbs", "read", "--expires", "soon"], '--expires: "soon" is not a duration'],
    [["--verbs", "publish", "--to", "nowhere"], 'destinations: "nowhere" is not a destination pattern'],
  ] as const)
    expect(await run("token", "create", "testUser1", ...args, ...where)).toMatchObject({
      code: 2,
      err: expect.stringContaining(said),
    });
  expect(await run("account", "limits", "testUser1", "--tokens", "1", ...where)).toMatchObject({ code: 0 });
  const create = (): ReturnType<typeof run> =>
    run("token", "create", "testUser1", "--verbs", "read", ...where);
  expect(await create()).toMatchObject({ code: 0 });
  expect(await create()).toMatchObject({
    code: 2,
    err: expect.stringContaining("tokens: there are 1, and the limit is 1; delete some that are not needed"),
  });
});
