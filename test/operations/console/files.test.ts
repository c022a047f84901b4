import { brotliCompressSync, brotliDecompressSync, gunzipSync, gzipSync } from "node:zlib";
import { expect, test } from "vitest";
import type { ConsoleFile } from "../../../src/operations/console/files.ts";
import { openPath } from "../../api/rawRequest.ts";
import { createTestServer, token } from "../../api/testServer.ts";

const script = Buffer.from("console.log('console');");
const page =
  '<!doctype html><script type="module" src="./assets/app-1a2b.js"></script><link href="./assets/app.css">';
const built = new Map<string, ConsoleFile>([
  ["index.html", { type: "text/html; charset=utf-8", body: Buffer.from(page) }],
  [
    "assets/app-1a2b.js",
    {
      type: "text/javascript; charset=utf-8",
      body: script,
      br: brotliCompressSync(script),
      gzip: gzipSync(script),
    },
  ],
  ["favicon.svg", { type: "image/svg+xml", body: Buffer.from("<svg/>") }],
]);

const serve = () => createTestServer({ console: { built } });

test("a browser that opens / is led to the console, and programs and other paths are not", async () => {
  const server = await serve();
  const browser = { accept: "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8" };
  for (const path of ["/", "/?utm_source=x"]) {
    const { status, headers } = await openPath(server, path, { headers: browser });
    expect([status, headers["location"], headers["cache-control"]]).toEqual([302, "console/", "no-store"]);
  }
  expect((await openPath(server, "/", { headers: browser, method: "HEAD" })).status).toBe(302);
  for (const [path, more] of [
    ["/", {}],
    ["/", { headers: { accept: "*/*" } }],
    ["/", { headers: { accept: "application/json, text/htmlx" } }],
    ["/", { headers: browser, method: "POST" }],
    ["//", { headers: browser }],
    ["/other", { headers: browser }],
  ] as const)
    expect([path, (await openPath(server, path, more)).headers["location"]]).toEqual([path, undefined]);
  for (const without of [await createTestServer(), await createTestServer({ console: { built: null } })])
    expect((await openPath(without, "/", { headers: browser })).status).toBe(404);
});

test("every page of the console is the same file, and names its files relative to itself", async () => {
  const server = await serve();
  for (const [path, up] of [
    ["/console/", "./"],
    ["/console/messages", "./"],
    ["/console/messages/msg_1", "../"],
    ["/console/runs/a%2Fb/steps/1?x=../../", "../../../"],
    ["/console/queues/", "../"],
  ] as const) {
    const { status, headers, body } = await openPath(server, path);
    expect([status, headers["content-type"], headers["cache-control"]]).toEqual([
      200,
      "text/html; charset=utf-8",
      "no-store",
    ]);
    expect(body.toString()).toContain(`src="${up}assets/app-1a2b.js"`);
    expect(body.toString()).toContain(`href="${up}assets/app.css"`);
  }
});

test("a path of many parts gets a short refusal, and a long one gets the page alone", async () => {
  const server = await serve();
  expect((await openPath(server, `/console${"/a".repeat(20)}`)).status).toBe(200);
  const deep = await openPath(server, `/console${"/".repeat(60_000)}`);
  expect([deep.status, deep.body.length < 100]).toEqual([404, true]);
  expect((await openPath(server, `/console${"/a".repeat(21)}`)).status).toBe(404);
  const long = await openPath(server, `/console/messages/${"a".repeat(60_000)}`);
  expect([long.status, long.body.length < 1_000]).toEqual([200, true]);
});

test("the address without a slash is redirected below the prefix of a proxy", async () => {
  const { status, headers } = await openPath(await serve(), "/console");
  expect([status, headers["location"]]).toEqual([308, "console/"]);
});

test("a hashed file is cached without end, and was compressed at build", async () => {
  const server = await serve();
  const read = (encoding: string, method = "GET") =>
    openPath(server, "/console/assets/app-1a2b.js", { method, headers: { "accept-encoding": encoding } });
  const plain = await read("");
  expect(plain.headers["cache-control"]).toBe("public, max-age=31536000, immutable");
  expect([plain.body, plain.headers["content-encoding"]]).toEqual([script, undefined]);
  const br = await read("gzip, deflate, br");
  expect([br.headers["content-encoding"], brotliDecompressSync(br.body)]).toEqual(["br", script]);
  const gzip = await read("gzip, br;q=0");
  expect([gzip.headers["content-encoding"], gunzipSync(gzip.body)]).toEqual(["gzip", script]);
  const head = await read("br", "HEAD");
  expect([head.status, head.body.length, head.headers["content-length"]]).toEqual([
    200,
    0,
    String(br.body.length),
  ]);
});

test("every file has the headers that keep hostile content harmless", async () => {
  const server = await serve();
  for (const path of ["/console", "/console/", "/console/favicon.svg", "/console/assets/none.js"]) {
    const { headers } = await openPath(server, path);
    expect(headers["content-security-policy"]).toBe(
      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
        "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; " +
        "require-trusted-types-for 'script'; trusted-types 'none'",
    );
    expect(headers).toMatchObject({
      "x-content-type-options": "nosniff",
      "referrer-policy": "no-referrer",
      "cross-origin-opener-policy": "same-origin",
      "cross-origin-resource-policy": "same-origin",
    });
  }
});

test.each([
  "/console/assets/../../package.json",
  "/console/../package.json",
  "/console/%2e%2e/%2e%2e/etc/passwd",
  "/console/assets/%2e%2e%2f%2e%2e%2fpackage.json",
  String.raw`/console/assets/..\..\package.json`,
  "/console//etc/passwd",
  "/console/assets/app-1a2b.js/..",
  "/console/assets/__proto__",
  "/consolex",
  "/CONSOLE/assets/app-1a2b.js",
])("a path outside the files gets none: %s", async (path) => {
  const { status, body } = await openPath(await serve(), path);
  const isPage = body.toString().startsWith("<!doctype html>");
  expect(isPage ? "page" : status).toBe(
    path.includes("assets") || /^\/consolex|^\/C/.test(path) ? 404 : "page",
  );
});

test("only reads are answered", async () => {
  const server = await serve();
  for (const method of ["POST", "PUT", "DELETE", "OPTIONS"])
    expect((await openPath(server, "/console/", { method })).status).toBeGreaterThanOrEqual(400);
});

test("a console that is not built says how to build it", async () => {
  const server = await createTestServer({ console: {} });
  const { status, body } = await openPath(server, "/console/");
  expect([status, body.toString()]).toEqual([503, expect.stringContaining("npm run build:console")]);
  expect((await server.ask("GET", "/v2/queues", { token })).status).toBe(200);
});
