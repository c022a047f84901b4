// @module-tag long
import { spawn } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { request, type RequestOptions } from "node:https";
import { join } from "node:path";
import { beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { buildConsole } from "../../../scripts/buildConsole.js";
import { authority, serverCertificate } from "../../engine/delivery/http/authority.ts";
import { findProgram } from "../debianPackage.ts";
import { findFreePort } from "../../freePort.ts";
import { developmentToken, runWaypost, startDestination, startWaypost, temporaryFolder } from "../waypost.ts";

const guide = readFileSync(join(import.meta.dirname, "../../../docs/guides/reverse-proxy.md"), "utf8");

/** Returns the part of the guide between two texts. */
function cut(from: string, to: string, text = guide): string {
  const start = text.indexOf(from) + from.length;
  return text.slice(start, text.indexOf(to, start));
}

/** The section with the rules that refuse requests about accounts. */
const refusing = cut("## Requests about accounts\n", "\n## ");

/** Replaces texts, each of which must be there. */
const replaceAll = (text: string, changes: readonly (readonly [string, string])[]): string =>
  changes.reduce((before, [part, by]) => {
    expect(before).toContain(part);
    return before.replace(part, by);
  }, text);

/** `refusesAccounts`: the configuration has the rules of the guide that refuse requests about accounts. */
type Place = { folder: string; port: number; upstream: number; refusesAccounts: boolean };
type Proxy = { name: string; program: string | null; args(place: Place): string[] };

/** The proxies of the guide, with the configuration of the guide for other ports and certificates. */
const proxies: Proxy[] = [
  {
    name: "nginx",
    program: findProgram("nginx", { inPackage: "nginx", at: "usr/sbin/nginx", versionFlag: "-v" }),
    args: ({ folder, port, upstream, refusesAccounts }) => {
      const rules = refusesAccounts ? cut("```nginx\n", "```", refusing) : "";
      const server = replaceAll(cut("```nginx\n", "```"), [
        ["listen 443 ssl", `listen 127.0.0.1:${port} ssl`],
        ["/etc/ssl/queue.pem", join(folder, "queue.pem")],
        ["/etc/ssl/queue.key", join(folder, "queue.key")],
        ["  location /", `${rules}  location /`],
        ["127.0.0.1:8080", `127.0.0.1:${upstream}`],
      ]);
      const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map((name) => `${name}_temp_path ${join(folder, name)};`)
        .join(" ");
      // Otherwise the workers of root run as a user who cannot write to these folders.
      const user = process.getuid?.() === 0 ? "user root;" : "";
      const main = `${user} daemon off; pid ${join(folder, "pid")}; error_log stderr; events {}`;
      const file = join(folder, "nginx.conf");
      writeFileSync(file, `${main}\nhttp { access_log off; ${temporary}\n${server}\n}\n`);
      return ["-p", folder, "-c", file, "-e", "stderr"];
    },
  },
  {
    name: "Caddy",
    program: findProgram("caddy", { inPackage: "caddy", at: "usr/bin/caddy", versionFlag: "version" }),
    args: ({ folder, port, upstream, refusesAccounts }) => {
      const rules = refusesAccounts ? cut("```text\n", "```", refusing) : "";
      const site = replaceAll(cut("```text\nqueue.example.com {", "```"), [
        ["reverse_proxy 127.0.0.1:8080", `${rules}\n reverse_proxy 127.0.0.1:${upstream}`],
      ]);
      const options = "{\n admin off\n auto_https disable_redirects\n skip_install_trust\n}";
      const tls = `tls ${join(folder, "queue.pem")} ${join(folder, "queue.key")}`;
      const file = join(folder, "Caddyfile");
      writeFileSync(file, `${options}\nhttps://127.0.0.1:${port} {\n ${tls}\n${site}`);
      return ["run", "--config", file, "--adapter", "caddyfile"];
    },
  },
];

/** Starts the server, and the proxy in front of it. Returns a client that speaks TLS with the proxy. */
async function startBehind({ program, args }: Proxy, { refusesAccounts }: Pick<Place, "refusesAccounts">) {
  const folder = join(temporaryFolder(), "proxy");
  mkdirSync(folder);
  writeFileSync(join(folder, "queue.pem"), serverCertificate.cert);
  writeFileSync(join(folder, "queue.key"), serverCertificate.key);
  writeFileSync(join(folder, "ca.pem"), authority);
  const port = await findFreePort();
  const publicUrl = `https://127.0.0.1:${port}`;
  const data = join(temporaryFolder(), "data");
  const flags = ["--data", data, "--public-url", publicUrl, "--trust-proxy", "127.0.0.1"];
  const server = await startWaypost(["dev", "--port", "0", ...flags]);
  const upstream = Number(new URL(server.url).port);
  const env = { PATH: process.env.PATH, HOME: folder, XDG_DATA_HOME: folder };
  const child = spawn(program ?? "", args({ folder, port, upstream, refusesAccounts }), {
    env,
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (text) => (output += String(text)));
  onTestFinished(() => void child.kill("SIGTERM"));
  const ask = (path: string, { body, ...options }: RequestOptions & { body?: Buffer | string } = {}) =>
    send(`${publicUrl}${path}`, options, body);
  await vi.waitFor(async () => expect((await ask("/v2/health")).status, output).toBe(200), {
    timeout: 120_000,
    interval: 100,
  });
  return { ask, publicUrl, folder, flags };
}

type Reply = { status: number; headers: NodeJS.Dict<string | string[]>; body: string };

/** Sends a request. A stream ends at its first line. */
function send(url: string, options: RequestOptions, body?: Buffer | string): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const authorization = `Bearer ${developmentToken}`;
    const headers = { authorization, ...options.headers };
    const sent = request(url, { ca: authority, agent: false, ...options, headers }, (response) => {
      let text = "";
      const finish = (): void =>
        resolve({ status: response.statusCode ?? 0, headers: response.headers, body: text });
      response.setEncoding("utf8").on("data", (part: string) => {
        text += part;
        if (url.includes("/tail") && text.includes("\n")) {
          finish();
          sent.destroy();
        }
      });
      response.on("end", finish).on("error", reject);
    });
    sent.on("error", reject).end(body);
  });
}

beforeAll(() => buildConsole());

describe.each(proxies)("behind $name, with the configuration of the guide", (proxy) => {
  const reason = `${proxy.name} is neither on the PATH nor a package that apt-get can download`;

  test("paths, large bodies, the console and streams arrive unchanged", async ({ skip }) => {
    if (proxy.program === null) skip(reason);
    const { ask, publicUrl, folder, flags } = await startBehind(proxy, { refusesAccounts: false });
    const destination = await startDestination();
    const body = Buffer.alloc(10 * 1024 * 1024, "0123456789abcdef");
    const url = `${destination.url}/a//b/%2F?c=d//e`;
    const published = await ask(`/v2/publish/${url}`, { method: "POST", body });
    expect(published).toMatchObject({ status: 200 });
    await vi.waitFor(() => expect(destination.arrivals).toHaveLength(1), { timeout: 120_000 });
    const [arrival] = destination.arrivals;
    expect(arrival?.path).toBe("/a//b/%2F?c=d//e");
    expect(arrival && Buffer.compare(arrival.body, body)).toBe(0);

    const page = await ask("/console/");
    expect(page).toMatchObject({ status: 200, body: expect.stringContaining("<html") });

    const tail = ask("/v2/logs/tail");
    await ask(`/v2/publish/${destination.url}/small`, { method: "POST", body: "small" });
    expect(JSON.parse((await tail).body.split("\n")[0] ?? "")).toBeTypeOf("object");

    const doctor = await runWaypost(["doctor", ...flags, "--json"], {
      NODE_EXTRA_CA_CERTS: join(folder, "ca.pem"),
    }).ended;
    const { findings } = JSON.parse(doctor.out) as { findings: { check: string }[] };
    expect(findings.find(({ check }) => check === "proxy")).toMatchObject({
      verdict: "ok",
      text: `${publicUrl} passes paths and bodies of 1.0 MiB on unchanged, and takes the length of 10.0 MiB`,
    });
  });

  test("requests about accounts are refused with the rules for that, and no others", async ({ skip }) => {
    if (proxy.program === null) skip(reason);
    const { ask } = await startBehind(proxy, { refusesAccounts: true });
    for (const path of ["/v2/admin/nodes", "/v2/%61dmin/nodes", "/v2/svc/users", "/v2/qstash/users"])
      expect((await ask(path)).status, path).toBe(404);
    const destination = await startDestination();
    await ask(`/v2/publish/${destination.url}/v2/admin/nodes`, { method: "POST", body: "small" });
    await vi.waitFor(() => expect(destination.arrivals).toHaveLength(1), { timeout: 120_000 });
    expect(await ask("/console/")).toMatchObject({ status: 200 });
  });
});
