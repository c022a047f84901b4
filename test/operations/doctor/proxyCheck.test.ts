import { once } from "node:events";
import { createServer, request } from "node:http";
import { createServer as createSecureServer } from "node:https";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { serverCertificate } from "../../engine/delivery/http/authority.ts";
import { findFreePort } from "../../freePort.ts";
import { checkPorts } from "../../../src/operations/doctor/ports.ts";
import { limits } from "../../../src/engine/core/values/limits.ts";
import { checkProxy } from "../../../src/operations/doctor/proxy.ts";
import { readConfig } from "../../../src/settings/config.ts";
import { startWaypost, temporaryFolder } from "../../server/waypost.ts";

/** Returns the path that a proxy passes on, or the status with which it refuses a request. */
type Change = (path: string, method: string, length: number) => string | number;

/** Starts a proxy in front of a server. It resets a connection with a body of more than `maxBytes`. */
async function startProxy(server: string, change: Change, maxBytes = Infinity): Promise<string> {
  const proxy = createServer((incoming, outgoing) => {
    let bytes = 0;
    incoming.on("data", (part: Buffer) => {
      if ((bytes += part.length) > maxBytes) incoming.socket.resetAndDestroy();
    });
    const { url = "", method = "", headers } = incoming;
    const path = change(url, method, Number(headers["content-length"] ?? 0));
    if (typeof path === "number") {
      outgoing.writeHead(path, { location: "/v2/health" }).end();
      return;
    }
    const { hostname, port } = new URL(server);
    const forwarded = request(
      { hostname, port, path, method, headers: { ...headers, host: "proxied" } },
      (response) => response.pipe(outgoing.writeHead(response.statusCode ?? 500, response.headers)),
    );
    forwarded.on("error", () => outgoing.destroy());
    incoming.pipe(forwarded);
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  onTestFinished(() => void (proxy.closeAllConnections(), proxy.close()));
  return `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
}

const startServer = () => startWaypost(["dev", "--port", "0", "--data", temporaryFolder()]);

const resolveDots = (path: string): string => {
  const kept: string[] = [];
  for (const part of path.split("/")) {
    if (part === "..") kept.pop();
    else kept.push(part);
  }
  return kept.join("/");
};

const checkAt = (publicUrl: string, maxBody = limits.messageBytes) => checkProxy({ publicUrl, maxBody });

test("the check of a proxy names what the proxy changes, and what to set", async () => {
  const { url } = await startServer();
  const check = async (change: Change, prefix = "") => checkAt(`${await startProxy(url, change)}${prefix}`);
  expect(await check((path) => path)).toMatchObject({ verdict: "ok" });
  const found: [text: RegExp, fix: RegExp, change: Change][] = [
    [/: it merges \/\/$/, /merge_slashes off/, (path) => path.replaceAll(/\/{2,}/g, "/")],
    [/: it decodes %2F$/, /proxy_pass without a path/, (path) => path.replaceAll(/%2f/gi, "/")],
    [/: it resolves \.\.$/, /proxy_pass without a path/, resolveDots],
    [/: it drops the query$/, /query/, (path) => path.split("?")[0] ?? ""],
    [
      /: it merges \/\/ in the query$/,
      /query/,
      (path) => path.replace(/\?.*/, (query) => query.replace("//", "/")),
    ],
    [
      /: it removes what is before \/v2 in the middle/,
      /beginning/,
      (path) => path.replace(/^.*(?=\/v2\/)/, ""),
    ],
    [/: it refuses %2F with status 400$/, /AllowEncodedSlashes/, (path) => (/%2f/i.test(path) ? 400 : path)],
    [/: it refuses \/\/ with status 301$/, /merge_slashes/, (path) => (/^[^?]*\/\//.test(path) ? 301 : path)],
  ];
  for (const [text, fix, change] of found)
    expect(await check(change), String(text)).toMatchObject({ verdict: "problem", text, fix });
  expect(
    await check((path) => resolveDots(decodeURIComponent(path)).replaceAll(/\/{2,}/g, "/")),
  ).toMatchObject({
    text: /: it decodes %2F, merges \/\/, resolves \.\./,
  });
  expect(await check((path, method) => (method === "POST" ? 413 : path))).toMatchObject({
    verdict: "problem",
    fix: "nginx: client_max_body_size 16m",
  });
  const refusing = await startProxy(url, (path, _method, length) => (length > 2_000_000 ? 413 : path));
  expect(await checkAt(refusing, 64 * 1024 * 1024)).toMatchObject({
    verdict: "problem",
    text: /refuses bodies of 64.0 MiB$/,
    fix: "nginx: client_max_body_size 103m",
  });
  expect(await checkAt("http://127.0.0.1:1")).toMatchObject({ verdict: "problem" });
  expect(await check(() => 502)).toMatchObject({ verdict: "problem", text: /status 502/ });
});

test("the check of a proxy with an untrusted certificate names NODE_EXTRA_CA_CERTS", async () => {
  const proxy = createSecureServer(serverCertificate).listen(0, "127.0.0.1");
  await once(proxy, "listening");
  onTestFinished(() => void proxy.close());
  const url = `https://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
  expect(await checkAt(url)).toEqual({
    verdict: "problem",
    text: `${url}/v2/health: its certificate is not trusted (UNABLE_TO_VERIFY_LEAF_SIGNATURE)`,
    fix: "name the file of its authority in NODE_EXTRA_CA_CERTS",
  });
});

test("the check of a proxy does not say ok if a large body was not passed", async () => {
  const { url } = await startServer();
  const unchanged: Change = (path) => path;
  expect(await checkAt(await startProxy(url, unchanged, 1_000_000))).toMatchObject({
    verdict: "warning",
    text: /whether .* passes bodies of 1\.0 MiB is unknown: /,
    fix: /with a token/,
  });
  const withoutConsole = await startProxy(url, (path) => (path.startsWith("/console") ? 403 : path));
  expect(await checkAt(withoutConsole)).toMatchObject({
    verdict: "warning",
    text: /: it responded with status 403$/,
  });
  for (const status of [502, 401]) {
    const refusing = await startProxy(url, (path, _method, length) => (length > 2_000_000 ? status : path));
    expect(await checkAt(refusing)).toMatchObject({
      verdict: "warning",
      text: new RegExp(`passes bodies of 10.0 MiB is unknown: it responded with status ${status}$`),
    });
    expect(await checkAt(refusing, 1_500_000)).toMatchObject({ verdict: "ok" });
  }
  const largest = await startProxy(url, unchanged);
  expect(await checkAt(largest, 64 * 1024 * 1024)).toMatchObject({ verdict: "ok" });
});

test("the check of a proxy with a prefix finds one that removes it in the middle of a path", async () => {
  const { url } = await startServer();
  const check = async (change: Change) => checkAt(`${await startProxy(url, change)}/queue`);
  expect(await check((path) => path.replace(/^\/queue/, ""))).toMatchObject({ verdict: "ok" });
  const all = await check((path) => path.replaceAll("/queue", ""));
  expect(all).toMatchObject({
    verdict: "problem",
    text: /: it removes \/queue in the middle of a path$/,
    fix: /beginning/,
  });
  expect(await check((path) => path.replace(/^.*\/queue/, ""))).toMatchObject({
    verdict: "problem",
    text: /in the middle of a path/,
  });
});

test("the check of the ports names the flag of a port that another program uses", async () => {
  const other = createServer((_incoming, outgoing) => void outgoing.end("another program"));
  other.listen(0, "127.0.0.1");
  await once(other, "listening");
  onTestFinished(() => void (other.closeAllConnections(), other.close()));
  const used = String((other.address() as AddressInfo).port);
  const free = String(await findFreePort());
  const check = (flags: Record<string, string>) => checkPorts(readConfig({ port: free, ...flags }, {}));
  expect(await check({})).toMatchObject({ verdict: "ok" });
  expect(await check({ port: "0" })).toMatchObject({ verdict: "ok" });
  for (const [name, flag] of [
    ["port", "--port"],
    ["accountPort", "--account-port"],
    ["metricsPort", "--metrics-port"],
  ] as const)
    expect(await check({ [name]: used, metricsHost: "127.0.0.1" }), flag).toMatchObject({
      verdict: "problem",
      text: `port ${used} (${flag}) is in use by another program`,
      fix: `stop that program, or choose another port with ${flag}`,
    });
  const server = await startServer();
  expect(await check({ port: new URL(server.url).port })).toMatchObject({
    verdict: "problem",
    text: /is in use by a Waypost server with other data$/,
  });
  expect(await check({ host: "192.0.2.1" })).toMatchObject({
    verdict: "problem",
    text: /192\.0\.2\.1/,
    fix: /--host/,
  });
});
