import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, brotliDecompressSync } from "node:zlib";
import { expect, test } from "vitest";
import { openPack, openPackFile, packSite } from "../../src/server/site/sitePack.ts";
import { openPath } from "../api/rawRequest.ts";
import { createTestServer, token } from "../api/testServer.ts";
import { temporaryFolder } from "./waypost.ts";

const html = "text/html; charset=utf-8";
const page = (text: string) => ({
  type: html,
  size: text.length,
  body: brotliCompressSync(text),
  isPacked: true,
});
const packed = packSite(
  ["'sha256-abc='"],
  [
    { path: "index.html", ...page("start") },
    { path: "guides/queues.html", ...page("queues") },
    { path: "404.html", ...page("no such page") },
    {
      path: "assets/app.1a2b.js",
      type: "text/javascript; charset=utf-8",
      size: 1,
      body: Buffer.from("1"),
      isPacked: false,
    },
  ],
);
const site = openPack((start, length) => packed.subarray(start, start + length));

test.each([
  ["/docs/", 200, "start"],
  ["/docs/?from=console", 200, "start"],
  ["/docs/guides/queues", 200, "queues"],
  ["/docs/guides/queues.html", 200, "queues"],
  ["/docs/assets/app.1a2b.js", 200, "1"],
  ["/docs/guides", 404, "no such page"],
  ["/docs/guides/queues/", 404, "no such page"],
  ["/docs/../index", 404, "no such page"],
  ["/docs/%2e%2e/index", 404, "no such page"],
  ["/docs/__proto__", 404, "no such page"],
  ["/docs/constructor", 404, "no such page"],
])("%s is answered with %d", async (path, status, text) => {
  const server = await createTestServer({ site });
  const plain = await openPath(server, path);
  expect([plain.status, plain.body.toString()]).toEqual([status, text]);
  expect(plain.headers["content-encoding"]).toBeUndefined();
  const short = await openPath(server, path, { headers: { "accept-encoding": "gzip, br" } });
  const isPacked = short.headers["content-encoding"] === "br";
  expect((isPacked ? brotliDecompressSync(short.body) : short.body).toString()).toBe(text);
  expect(isPacked).toBe(!path.endsWith(".js"));
  const head = await openPath(server, path, { method: "HEAD" });
  expect([head.status, head.headers["content-length"], head.body.length]).toEqual([
    status,
    String(text.length),
    0,
  ]);
});

test("pages run only the scripts of the build, and browsers keep only hashed names", async () => {
  const server = await createTestServer({ site });
  const { headers } = await openPath(server, "/docs/");
  const policy = String(headers["content-security-policy"]);
  expect(policy).toContain("script-src 'self' 'sha256-abc=';");
  expect(policy).not.toContain("unsafe");
  expect(headers["cache-control"]).toBe("no-cache");
  const script = await openPath(server, "/docs/assets/app.1a2b.js");
  expect(script.headers["cache-control"]).toContain("immutable");
  expect(server.lines.at(-1)).toMatchObject({ path: "/docs/assets/app.1a2b.js", status: 200, account: null });
});

test("/docs leads to the first page, and other paths and methods are not the site's", async () => {
  const server = await createTestServer({ site });
  const { status, headers } = await openPath(server, "/docs");
  expect([status, headers["location"]]).toEqual([308, "docs/"]);
  for (const [path, method] of [
    ["/docsx", "GET"],
    ["/docs/", "POST"],
    ["/v2/docs", "GET"],
  ] as const) {
    const answer = await openPath(server, path, { method, headers: { authorization: `Bearer ${token}` } });
    expect([path, answer.status, answer.body.toString().includes("start")]).toEqual([path, 404, false]);
  }
});

test("a checkout without a build says how to build the site", async () => {
  const answer = await openPath(await createTestServer({ site: null }), "/docs/guides/queues");
  expect(answer.status).toBe(503);
  expect(answer.body.toString()).toContain("npm run build:site");
});

test("a pack that becomes unreadable while the server runs stops only the documentation", async () => {
  let isGone = false;
  const damaged = openPack((start, length) => {
    if (isGone) throw new Error("EIO: i/o error, read");
    return packed.subarray(start, start + length);
  });
  const server = await createTestServer({ site: damaged });
  isGone = true;
  const answer = await openPath(server, "/docs/");
  expect(answer.status).toBe(503);
  expect(answer.body.toString()).toContain("cannot be read");
  expect((await openPath(server, "/v2/health")).status).toBe(200);
  isGone = false;
  expect((await openPath(server, "/docs/")).status).toBe(200);
});

test("a pack that is cut is not opened", () => {
  const file = join(temporaryFolder(), "site.pack");
  expect(openPackFile(file)).toBeNull();
  writeFileSync(file, packed.subarray(0, 60));
  expect(() => openPackFile(file)).toThrow("ends early; build it again");
});
