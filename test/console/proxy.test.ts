import type { IncomingMessage, Server, ServerResponse } from "node:http";
import { createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, expect, test } from "vitest";
import { expectShown } from "./measures.ts";
import { describeConsole } from "./openConsole.ts";

const prefix = "/ops/queue";
let proxy: Server | null = null;
afterAll(() => void proxy?.close());

describeConsole(
  "behind a reverse proxy with a prefix",
  (open) => {
    test("pages, deep links, changes and the log-in work below the prefix", async () => {
      const origin = await startProxy(open.server.url);
      const page = await (await open.newContext()).newPage();
      const requests: string[] = [];
      page.on("request", (one) => requests.push(one.url()));
      page.on("pageerror", (error) => open.reports.push(error.message));
      page.on("console", (message) => message.type() === "error" && open.reports.push(message.text()));
      await page.goto(`${origin}${prefix}/console`);
      await page.getByRole("button", { name: "Token" }).click();
      await page.getByRole("textbox", { name: "Token" }).fill(open.server.token);
      await page.getByRole("button", { name: "Sign in" }).click();
      await expectShown(page.getByText("Queue returns is paused"));
      await page.getByRole("link", { name: /^Runs/ }).first().click();
      await page.waitForURL(`${origin}${prefix}/console/runs`);
      await page.goto(`${origin}${prefix}/console/runs/order-48213`);
      await expectShown(page.locator(".tl-row").first());
      await page.goto(`${origin}${prefix}/console/queues`);
      const row = page.getByRole("row").filter({ hasText: "returns" });
      await row.getByRole("button", { name: "Resume" }).click();
      await expectShown(row.getByRole("button", { name: "Pause" }));
      await page.goto(`${origin}${prefix}/console/publish`);
      await expectShown(page.getByText(`${origin}${prefix}/v2/publish/`).first());
      expect(requests.filter((url) => !url.startsWith(`${origin}${prefix}/`))).toEqual([]);
      await page.context().close();
    });

    test("the policy of the page is the same behind the proxy", async () => {
      const origin = await startProxy(open.server.url);
      const direct = await fetch(`${open.server.url}/console/`);
      const proxied = await fetch(`${origin}${prefix}/console/runs/order-48213`);
      expect(proxied.headers.get("content-security-policy")).toContain("default-src 'none'");
      expect(proxied.headers.get("content-security-policy")).toBe(
        direct.headers.get("content-security-policy"),
      );
    });
  },
  { tags: ["long"] },
);

/** Starts a proxy that removes the prefix from each path. Returns its origin. */
async function startProxy(target: string): Promise<string> {
  proxy ??= createServer((incoming, response) => forward(target, incoming, response));
  const server = proxy;
  if (!server.listening) await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

function forward(target: string, incoming: IncomingMessage, response: ServerResponse): void {
  const { url = "", method, headers } = incoming;
  if (!url.startsWith(`${prefix}/`)) {
    response.writeHead(404).end();
    return;
  }
  const outgoing = request(`${target}${url.slice(prefix.length)}`, { method, headers }, (answer) => {
    response.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.pipe(response);
  });
  outgoing.on("error", () => response.destroy());
  incoming.pipe(outgoing);
}
