import { createServer } from "node:http";
import { once } from "node:events";
import { DatabaseSync } from "node:sqlite";
import { chmodSync, readdirSync, readFileSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { request } from "undici";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  readCredentials,
  developmentToken,
  runWaypost,
  startDestination,
  startWaypost,
  temporaryFolder,
} from "./waypost.ts";

const variable = (text: string, name: string): string =>
  new RegExp(`^${name}="(.*)"$`, "m").exec(text)?.[1] ?? "";

describe("waypost start", () => {
  test("waypost credentials prints those that the first start made, and no output has them", async () => {
    const data = join(temporaryFolder(), "made");
    const first = await startWaypost(["start", "--port", "0", "--data", data]);
    expect(first.out()).toContain("created the account owner; waypost credentials, with the same settings,");
    const printed = await readCredentials("--data", data);
    const token = variable(printed, "WAYPOST_TOKEN");
    expect(variable(printed, "QSTASH_TOKEN")).toBe(token);
    expect(variable(printed, "QSTASH_URL")).toBe(first.url);
    const { UserID } = JSON.parse(Buffer.from(token, "base64").toString());
    expect(UserID).toBe(variable(printed, "WAYPOST_ACCOUNT_ID"));
    const keys = await request(`${first.url}/v2/keys`, { headers: { authorization: `Bearer ${token}` } });
    expect(await keys.body.json()).toEqual({
      current: variable(printed, "WAYPOST_CURRENT_SIGNING_KEY"),
      next: variable(printed, "WAYPOST_NEXT_SIGNING_KEY"),
    });

    first.kill("SIGTERM");
    const ended = await first.ended;
    expect(ended.code).toBe(0);
    for (const name of ["WAYPOST_TOKEN", "WAYPOST_PASSWORD", "WAYPOST_CURRENT_SIGNING_KEY"])
      expect(ended.out + ended.err).not.toContain(variable(printed, name));
    const second = await startWaypost(["start", "--port", "0", "--data", data]);
    expect(second.out()).not.toContain(token);
  });

  test(
    "credentials have the URL of the running server, or else that of the settings",
    { tags: "long" },
    async () => {
      const data = temporaryFolder();
      const print = (...args: string[]) => runWaypost([...args, "--data", data]).ended.then(({ out }) => out);
      const first = await startWaypost(["start", "--port", "0", "--data", data]);
      expect(variable(await print("credentials", "owner"), "WAYPOST_URL")).toBe(first.url);
      expect(variable(await print("account", "create", "shop"), "QSTASH_URL")).toBe(first.url);
      first.kill("SIGTERM");
      await first.ended;
      const away = await print("credentials", "owner", "--host", "0.0.0.0", "--port", "9000");
      expect(variable(away, "WAYPOST_URL")).toBe("http://127.0.0.1:9000");
      expect(away).toContain("# no running server found");
      const second = await startWaypost([
        "start",
        "--port",
        "0",
        "--data",
        data,
        "--public-url",
        "https://queue.example/",
      ]);
      await expect.poll(() => second.out()).toMatch(/console at https:\/\/queue\.example\/console\/["\n]/);
      const asked = await print("credentials", "shop");
      expect(variable(asked, "WAYPOST_URL")).toBe("https://queue.example");
      expect(asked).not.toContain("# no server");
      second.kill("SIGTERM");
    },
  );

  test("the credentials of several accounts are only printed for a named one", { tags: "long" }, async () => {
    const data = temporaryFolder();
    await startWaypost(["dev", "--port", "0", "--data", data]);
    const all = await runWaypost(["credentials", "--data", data]).ended;
    const accounts = "defaultUser, testUser1, testUser2, testUser3";
    expect(all).toMatchObject({
      code: 2,
      out: "",
      err:
        `waypost: several accounts exist; name one of ${accounts}, ` +
        "for example waypost credentials defaultUser\n",
    });
    const one = await runWaypost(["credentials", "testUser2", "--data", data]).ended;
    expect(one.out.match(/^WAYPOST_USER=.*$/gm)).toEqual(['WAYPOST_USER="testUser2"']);
    expect(await runWaypost(["credentials", "nobody", "--data", data]).ended).toMatchObject({
      code: 2,
      out: "",
      err: expect.stringContaining("nobody: account does not exist"),
    });
  });

  test("git ignores files with credentials", () => {
    const ignored = readFileSync(join(import.meta.dirname, "../../.gitignore"), "utf8").split("\n");
    expect(ignored).toEqual(expect.arrayContaining([".env", "/data/", "/dev-data/"]));
  });

  test("deliveries to this machine are refused unless allowed, and the error names the setting", async () => {
    const destination = await startDestination();
    const publish = async (environment: NodeJS.ProcessEnv): Promise<string> => {
      const data = temporaryFolder();
      const server = await startWaypost(["start", "--port", "0", "--data", data], environment);
      const credentials = await readCredentials("--data", data);
      const authorization = `Bearer ${variable(credentials, "WAYPOST_TOKEN")}`;
      await request(`${server.url}/v2/publish/${destination.url}/x`, {
        method: "POST",
        headers: { authorization, "svc-retries": "0" },
      });
      for (;;) {
        const { body } = await request(`${server.url}/v2/logs`, { headers: { authorization } });
        const { logs } = (await body.json()) as { logs: { state: string; error?: string }[] };
        const last = logs.find(({ state }) => state === "DELIVERED" || state === "FAILED");
        if (last) return last.error ?? last.state;
      }
    };
    expect(await publish({})).toContain("WAYPOST_EGRESS_ALLOW");
    expect(destination.arrivals).toHaveLength(0);
    expect(await publish({ WAYPOST_EGRESS_ALLOW: "127.0.0.0/8" })).toBe("DELIVERED");
  });
});

test("a command continues if the reader of its output has gone", async () => {
  const receiver = runWaypost(["listen", "0"]);
  const url = await receiver.ready;
  receiver.leave();
  for (let n = 0; n < 3; n++) {
    const { statusCode, body } = await request(url, { method: "POST", body: "x".repeat(1_000) });
    await body.dump();
    expect(statusCode).toBe(200);
  }
  receiver.kill("SIGTERM");
  expect(await receiver.ended).toMatchObject({ code: 0, signal: null });
});

describe("a start that fails ends with code 2 and a reason:", () => {
  test("a port in use", async () => {
    const taken = createServer().listen(0, "127.0.0.1");
    onTestFinished(() => void taken.close());
    await once(taken, "listening");
    const address = taken.address();
    const port = String(address && typeof address === "object" ? address.port : 0);
    const { code, err } = await runWaypost(["start", "--port", port, "--data", temporaryFolder()]).ended;
    expect({ code, err }).toEqual({
      code: 2,
      err: expect.stringMatching(/is already in use; choose another with --port/),
    });
  });

  test("a folder that another server uses", async () => {
    const data = temporaryFolder();
    await startWaypost(["dev", "--port", "0", "--data", data]);
    const { code, err } = await runWaypost(["dev", "--port", "0", "--data", data]).ended;
    expect({ code, err }).toEqual({
      code: 2,
      err: expect.stringContaining("another waypost server is using it"),
    });
  });

  test("a data path that is a file, or cannot be written", async () => {
    const folder = temporaryFolder();
    writeFileSync(join(folder, "file"), "");
    chmodSync(folder, 0o500);
    const { code, err } = await runWaypost(["start", "--port", "0", "--data", join(folder, "file", "data")])
      .ended;
    expect({ code, err }).toEqual({ code: 2, err: expect.stringContaining("cannot be written") });
  });

  test("a store of another development version", async () => {
    const data = temporaryFolder();
    const server = await startWaypost(["dev", "--port", "0", "--data", data]);
    server.kill("SIGTERM");
    await server.ended;
    const database = new DatabaseSync(join(data, "waypost.db"));
    database.exec("update store_schema set hash = 'other'");
    database.close();
    const { code, err } = await runWaypost(["dev", "--port", "0", "--data", data]).ended;
    expect({ code, err }).toEqual({
      code: 2,
      err: expect.stringContaining("has tables of another version of Waypost"),
    });
  });

  test.each([
    [["start", "--prot", "80"], {}, "--prot"],
    [["begin"], {}, "begin"],
    [["start", "--port", "http"], {}, "--port: must be"],
    [["start", "--log-retention", "soon"], {}, "--log-retention: must be a duration"],
    [
      ["start", "--database-url", "mysql://127.0.0.1/x"],
      {},
      "--database-url: must be a URL that begins with postgres://",
    ],
    [
      ["start", "--port", "0", "--database-url", "postgres://127.0.0.1:1/x"],
      {},
      "PostgreSQL cannot be reached",
    ],
    [["start", "--port", "0", "--data", "package.json"], {}, "it is a file, not a folder"],
    [
      ["start"],
      { WAYPOST_EGRESS_ALLOW: "10.0.0.0/99" },
      'WAYPOST_EGRESS_ALLOW: "10.0.0.0/99" is not a network',
    ],
    [["start", "--sends-from", "here"], {}, '--sends-from: "here" is not a network'],
    [["start", "--trust-proxy", "loopback,10.0.0.0/40"], {}, '--trust-proxy: "10.0.0.0/40" is not a network'],
    [["start", "--region", "eu-west-1"], {}, "--region: must be eu-central-1 or us-east-1"],
    [
      ["start", "--cors-origin", "https://app.example/"],
      {},
      '--cors-origin: "https://app.example/" is not an origin',
    ],
    [["start", "--cors-origin", "*,https://app.example"], {}, "--cors-origin: * allows every origin"],
    [["start", "--public-url", "https://user:pw@queue.example"], {}, "--public-url: must be an http:// or"],
    [["start", "--reserved-prices", "gold=5"], {}, '--reserved-prices: "gold=5" is not a plan and its price'],
    [["start", "--port", "0", "--data", "/proc/waypost"], {}, "/proc/waypost: cannot be written"],
    [
      ["start", "--port", "0", "--accept-clock", "--database-url", "postgres://127.0.0.1:1/waypost"],
      {},
      "--accept-clock: is for a store in a data folder",
    ],
    [["start"], { WAYPOST_PROT: "1" }, "WAYPOST_PROT: unknown setting"],
  ])("%j %j", async (args, environment, said) => {
    const { code, err } = await runWaypost(args, environment).ended;
    expect({ code, err }).toEqual({ code: 2, err: expect.stringContaining(said) });
    expect(err, "no stack trace").not.toMatch(/^ {4}at /m);
  });

  test("the help lists every setting", async () => {
    const { code, out } = await runWaypost(["start", "--help"]).ended;
    expect(code).toBe(0);
    for (const name of [
      "WAYPOST_PORT",
      "WAYPOST_HOST",
      "WAYPOST_DATA",
      "WAYPOST_DATABASE_URL",
      "WAYPOST_EGRESS_ALLOW",
    ])
      expect(out).toContain(name);
  });
});

describe("a signal to stop", { tags: "long" }, () => {
  test.each(["SIGTERM", "SIGHUP"] as const)(
    "%s: unfinished deliveries are sent again by the next start",
    async (signal) => {
      const data = temporaryFolder();
      let slow = true;
      const destination = await startDestination();
      const hanging = createServer((_, response) => {
        arrived++;
        if (!slow) response.end();
      });
      let arrived = 0;
      hanging.listen(0, "127.0.0.1");
      await once(hanging, "listening");
      onTestFinished(() => void (hanging.closeAllConnections(), hanging.close()));
      const address = hanging.address();
      const url = `http://127.0.0.1:${address && typeof address === "object" ? address.port : 0}/`;
      const first = await startWaypost(["dev", "--port", "0", "--data", data, "--grace", "1s"]);
      const authorization = `Bearer ${developmentToken}`;
      await request(`${first.url}/v2/publish/${url}`, {
        method: "POST",
        headers: { authorization, "svc-retries": "0" },
      });
      while (arrived === 0) await new Promise((resolve) => setTimeout(resolve, 5));
      first.kill(signal);
      expect((await first.ended).code).toBe(0);
      slow = false;
      const second = await startWaypost(["dev", "--port", "0", "--data", data]);
      while (arrived === 1) await new Promise((resolve) => setTimeout(resolve, 5));
      await request(`${second.url}/v2/publish/${destination.url}/after`, {
        method: "POST",
        headers: { authorization },
      });
      await destination.until((arrivals) => arrivals.length === 1);
      expect(arrived).toBe(2);
    },
  );
});

describe("a log that cannot be written", () => {
  test("affects only the log: messages are delivered and the server stops as usual", async () => {
    const destination = await startDestination();
    const server = runWaypost(
      ["dev", "--port", "0", "--data", temporaryFolder(), "--log-level", "debug"],
      {},
      "/dev/full",
    );
    const url = `${await server.ready}/v2/publish/${destination.url}/`;
    for (const path of ["first", "second", "third"]) {
      const { statusCode } = await request(url + path, {
        method: "POST",
        headers: { authorization: `Bearer ${developmentToken}` },
      });
      expect(statusCode).toBe(200);
    }
    await destination.until((arrivals) => arrivals.length === 3);
    server.kill("SIGTERM");
    expect((await server.ended).code).toBe(0);
  });
});

describe("waypost listen", () => {
  test("prints requests, verifies their signatures and responds as configured", async () => {
    const listening = runWaypost(["listen", "0", "--status", "202"]);
    const url = await listening.ready;
    const server = await startWaypost(["dev", "--port", "0"]);
    await request(`${server.url}/v2/publish/${url}/hello`, {
      method: "POST",
      headers: { authorization: `Bearer ${developmentToken}` },
      body: "payload",
    });
    while (!listening.out().includes("answered 202")) await new Promise((resolve) => setTimeout(resolve, 5));
    expect(listening.out()).toContain("POST /hello");
    expect(listening.out()).toContain("payload");
    expect(listening.out()).toContain("Svc-Signature: valid");
    const stray = await request(`${url}/stray`);
    expect(stray.statusCode).toBe(202);
    while (!listening.out().includes("no signature")) await new Promise((resolve) => setTimeout(resolve, 5));
  });
});

describe("a damaged store, or a folder with files", () => {
  test("a file that is not a database is refused with advice", async () => {
    const data = temporaryFolder();
    writeFileSync(
      join(data, "waypost.db"),
      "this is not a database, and never was one, however long it is looked at".repeat(100),
    );
    const { code, err } = await runWaypost(["dev", "--port", "0", "--data", data]).ended;
    expect({ code, err }).toEqual({
      code: 2,
      err: expect.stringContaining("damaged, or not a store of waypost"),
    });
  });

  test("new files in an existing folder are readable only by this user", async () => {
    const data = temporaryFolder();
    chmodSync(data, 0o755);
    await startWaypost(["start", "--port", "0", "--data", data]);
    for (const name of readdirSync(data)) expect(statSync(join(data, name)).mode & 0o077, name).toBe(0);
  });
});

describe("SIGTERM while a request never ends", () => {
  test("the server still stops", async () => {
    const server = await startWaypost(["dev", "--port", "0", "--grace", "1s"]);
    const socket = connect(Number(new URL(server.url).port), "127.0.0.1");
    // The server closes the connection at the end of its grace.
    socket.on("error", () => undefined);
    onTestFinished(() => void socket.destroy());
    await once(socket, "connect");
    socket.write("POST /v2/publish/http://127.0.0.1:9/ HTTP/1.1\r\nHost: x\r\n");
    server.kill("SIGTERM");
    expect((await server.ended).code).toBe(0);
  });
});

describe("waypost dev without --data", () => {
  test("keeps nothing after it stops, even if it was killed", { tags: "long" }, async () => {
    const folder = temporaryFolder();
    const environment = { TMPDIR: folder };
    const killed = await startWaypost(["dev", "--port", "0"], environment);
    const running = await startWaypost(["dev", "--port", "0"], environment);
    killed.kill("SIGKILL");
    await killed.ended;
    // As after an hour.
    const left = readdirSync(folder);
    for (const name of left)
      utimesSync(join(folder, name), Date.now() / 1000 - 3600, Date.now() / 1000 - 3600);
    expect(left).toHaveLength(2);
    const next = await startWaypost(["dev", "--port", "0"], environment);
    expect(readdirSync(folder)).toHaveLength(2);
    const health = await request(`${running.url}/v2/health/ready`);
    expect(health.statusCode, "the running server keeps its folder").toBe(200);
    for (const server of [running, next]) {
      server.kill("SIGTERM");
      expect((await server.ended).code).toBe(0);
    }
    expect(readdirSync(folder)).toEqual([]);
  });
});
