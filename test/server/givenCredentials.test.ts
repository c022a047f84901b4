import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseEnv } from "node:util";
import { describe, expect, test } from "vitest";
import { makeToken } from "../../src/engine/core/values/tokenText.ts";
import { readConfig } from "../../src/settings/config.ts";
import { startCommand } from "../client/startCommand.ts";
import { readCredentials, runWaypost, startWaypost, temporaryFolder } from "./waypost.ts";

/** Returns the variables of new credentials that belong to the server, and those that belong to clients. */
async function makeCredentials() {
  const { code, out, err } = await startCommand(["credentials", "--new"], {}).ended;
  expect({ code, err }).toEqual({ code: 0, err: "" });
  const all = Object.entries(parseEnv(out)) as [string, string][];
  const isServers = ([name]: [string, string]): boolean => name.startsWith("WAYPOST_");
  return {
    out,
    server: Object.fromEntries(all.filter(isServers)),
    client: Object.fromEntries(all.filter((one) => !isServers(one))),
  };
}

const ask = async (url: string, token: string | undefined, method = "GET") => {
  const response = await fetch(url, { method, headers: { authorization: `Bearer ${token}` } });
  return { status: response.status, body: await response.json() };
};

/** Starts a server that is expected to refuse its settings, and returns what it says. */
async function readRefusal(data: string, environment: NodeJS.ProcessEnv): Promise<string> {
  const { code, out, err } = await runWaypost(["start", "--port", "0", "--data", data], environment).ended;
  expect(code).toBe(2);
  for (const secret of Object.values(environment)) expect(out + err).not.toContain(secret);
  return err;
}

describe("waypost credentials --new", () => {
  test("prints lines of an .env file, without a server, and others each time", async () => {
    const { out, server, client } = await makeCredentials();
    expect(Object.keys(server).toSorted()).toEqual([
      "WAYPOST_NEXT_SIGNING_KEY",
      "WAYPOST_OWNER_TOKEN",
      "WAYPOST_SIGNING_KEY",
    ]);
    expect(client).toEqual({
      QSTASH_TOKEN: server["WAYPOST_OWNER_TOKEN"],
      QSTASH_CURRENT_SIGNING_KEY: server["WAYPOST_SIGNING_KEY"],
      QSTASH_NEXT_SIGNING_KEY: server["WAYPOST_NEXT_SIGNING_KEY"],
    });
    // Some readers of such files keep quotes.
    expect(out).toMatch(/^(#.*\n|[A-Z_]+=[\w+/]+=*\n)+$/);
    const other = await makeCredentials();
    for (const name of Object.keys(server)) expect(other.server[name]).not.toBe(server[name]);
  });

  test("prints the address for clients if it is known", async () => {
    const run = (args: readonly string[], environment = {}) =>
      startCommand(["credentials", "--new", ...args], environment).ended;
    const { out } = await run(["--public-url", "https://queue.example.com/"]);
    expect(parseEnv(out)["QSTASH_URL"]).toBe("https://queue.example.com");
    const named = await run([], { WAYPOST_PUBLIC_URL: "https://other.example.com" });
    expect(parseEnv(named.out)["QSTASH_URL"]).toBe("https://other.example.com");
    expect((await run(["owner"])).code).toBe(2);
    expect((await run(["--public-url", "nowhere"])).code).toBe(2);
  });
});

describe("a server with credentials in its settings", () => {
  test("takes them at the first start, and refuses others, also after a rotation", async () => {
    const data = join(temporaryFolder(), "data");
    const { server: given } = await makeCredentials();
    const { WAYPOST_OWNER_TOKEN: token, WAYPOST_SIGNING_KEY: current } = given;
    const start = (environment: NodeJS.ProcessEnv) =>
      startWaypost(["start", "--port", "0", "--data", data], environment);
    const first = await start(given);
    expect((await ask(`${first.url}/v2/keys`, token)).body).toEqual({
      current,
      next: given["WAYPOST_NEXT_SIGNING_KEY"],
    });
    const printed = parseEnv(await readCredentials("--data", data));
    expect(printed).toMatchObject({ WAYPOST_TOKEN: token, WAYPOST_USER: "owner" });
    first.kill("SIGTERM");
    const { out, err } = await first.ended;
    for (const secret of Object.values(given)) expect(out + err).not.toContain(secret);

    const { server: others } = await makeCredentials();
    expect(await readRefusal(data, others)).toContain(
      "WAYPOST_OWNER_TOKEN: belongs to no account of this store, which has other credentials; " +
        "remove WAYPOST_OWNER_TOKEN, WAYPOST_SIGNING_KEY and WAYPOST_NEXT_SIGNING_KEY, or use another store",
    );
    const id = JSON.parse(Buffer.from(token ?? "", "base64").toString()).UserID as string;
    const guessed = { ...given, WAYPOST_OWNER_TOKEN: makeToken(id, "another password") };
    expect(await readRefusal(data, guessed)).toContain("the account owner has another token");

    const again = await start(given);
    const diagnose = () => runWaypost(["doctor", "--data", data], given).ended;
    expect((await diagnose()).out).toMatch(/^ok +credentials +the settings have no credentials, or those/m);
    await ask(`${again.url}/v2/keys/rotate`, token, "POST");
    const { code: verdict, out: found } = await diagnose();
    expect(verdict).toBe(1);
    expect(found).toMatch(/^problem +credentials +the next start will be refused: WAYPOST_SIGNING_KEY: /m);
    again.kill("SIGTERM");
    await again.ended;
    const refusal = await readRefusal(data, given);
    expect(refusal).toContain(
      "WAYPOST_SIGNING_KEY: the account owner has other signing keys; after a rotation",
    );
    expect(refusal).toContain("WAYPOST_CURRENT_SIGNING_KEY");
    const rotated = parseEnv(await readCredentials("--data", data));
    const followed = await start({
      WAYPOST_OWNER_TOKEN: rotated["WAYPOST_TOKEN"],
      WAYPOST_SIGNING_KEY: rotated["WAYPOST_CURRENT_SIGNING_KEY"],
      WAYPOST_NEXT_SIGNING_KEY: rotated["WAYPOST_NEXT_SIGNING_KEY"],
    });
    followed.kill("SIGTERM");
    await followed.ended;
    const without = await start({});
    expect((await ask(`${without.url}/v2/keys`, token)).status).toBe(200);
  });

  test("takes them from files", async () => {
    const folder = temporaryFolder();
    const { server: given } = await makeCredentials();
    const inFiles = Object.fromEntries(
      Object.entries(given).map(([name, value]) => {
        writeFileSync(join(folder, name), `${value}\n`);
        return [`${name}_FILE`, join(folder, name)];
      }),
    );
    const server = await startWaypost(["start", "--port", "0", "--data", join(folder, "data")], inFiles);
    const { status } = await ask(`${server.url}/v2/keys`, given["WAYPOST_OWNER_TOKEN"]);
    expect(status).toBe(200);
  });

  test("cannot be a development server, whose credentials are well known", async () => {
    const { server: given } = await makeCredentials();
    const { code, err } = await runWaypost(["dev", "--port", "0"], given).ended;
    expect(code).toBe(2);
    expect(err).toContain("WAYPOST_OWNER_TOKEN: a development server has its own well-known credentials");
  });
});

describe("the settings of the first account", () => {
  const token = makeToken("owner", "a long password");
  const longer = makeToken("owner", "a longer password");
  const [one, two] = ["sig_1111111111111111", "sig_2222222222222222"];
  const read = (ownerToken: string, signingKey: string, nextSigningKey: string) => () =>
    readConfig(
      {},
      {
        WAYPOST_OWNER_TOKEN: ownerToken,
        WAYPOST_SIGNING_KEY: signingKey,
        WAYPOST_NEXT_SIGNING_KEY: nextSigningKey,
      },
    );

  test("are complete", () => {
    expect(read(longer, one, two)()).toMatchObject({ ownerToken: longer, signingKey: one });
    expect(read("", "", "")()).toMatchObject({ ownerToken: "" });
    // As in a shell that has the variables of a client.
    expect(read("", "", two)()).toMatchObject({ nextSigningKey: two });
    expect(read("", one, two)).toThrow(/^WAYPOST_SIGNING_KEY: requires WAYPOST_OWNER_TOKEN/);
    expect(read(longer, one, "")).toThrow(/^WAYPOST_OWNER_TOKEN: requires WAYPOST_SIGNING_KEY and/);
    expect(read(longer, "", two)).toThrow(/^WAYPOST_OWNER_TOKEN: requires WAYPOST_SIGNING_KEY and/);
    expect(read(longer, one, one)).toThrow(/^WAYPOST_NEXT_SIGNING_KEY: is the same key/);
  });

  test.each([
    ["a short password", token],
    ["the token of a development server", makeToken("defaultUser", "defaultPassword")],
    ["no JSON", Buffer.from("owner").toString("base64")],
    ["no account", makeToken("", "a longer password")],
    ["an id of a wrong form", makeToken("owner/../x", "a longer password")],
    ["a line break", `${longer}\nX: y`],
    ["quotes", `"${longer}"`],
    ["more than 2,000 characters", makeToken("owner", "p".repeat(5_000))],
  ])("refuse a token with %s, and do not repeat it", (_what, given) => {
    expect(read(given, one, two)).toThrow(/^WAYPOST_OWNER_TOKEN: must be a token as printed by/);
    expect(read(given, one, two)).not.toThrow(given);
  });

  test.each(["short", "with a space in it", "x".repeat(201), "sig_é12345678901234567890"])(
    "refuse the key %j",
    (key) => {
      expect(read(longer, key, two)).toThrow(/^WAYPOST_SIGNING_KEY: must be a key of 16 to 200/);
      expect(read(longer, one, key)).toThrow(/^WAYPOST_NEXT_SIGNING_KEY: must be a key of 16 to 200/);
    },
  );

  test("have no flags, which every user of a machine can read", async () => {
    const { out } = await runWaypost(["start", "--help"]).ended;
    expect(out).not.toContain("--owner-token");
    const shown = await runWaypost(["config"], {
      WAYPOST_OWNER_TOKEN: longer,
      WAYPOST_SIGNING_KEY: one,
      WAYPOST_NEXT_SIGNING_KEY: two,
    }).ended;
    for (const secret of [longer, one, two]) expect(shown.out).not.toContain(secret);
    expect(shown.out).toMatch(/^ownerToken +\(hidden\) +WAYPOST_OWNER_TOKEN$/m);
  });
});
