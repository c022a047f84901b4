// @module-tag long
import { createServer } from "node:http";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { buildConsole } from "../../../scripts/buildConsole.js";
import { launchBrowser } from "../chromium.ts";
import { startConsoleServer } from "../consoleServer.ts";
import { openPage, signIn } from "../pages.ts";
import { incidents } from "./incidents.ts";
import type { Shop } from "./onCall.ts";
import { OnCall } from "./onCall.ts";

// Each incident has its own server. A person on call sees it on the first page, and repairs it.

/** The maximum number of clicks that repair an incident. */
const mostClicks = 6;

async function openShop(): Promise<Shop> {
  const shop: Shop = { url: "", host: "", mode: "ok", accepted: 0, close: () => undefined };
  const server = createServer((request, response) => {
    request.resume();
    if (shop.mode === "hang") return;
    if (shop.mode === "ok") shop.accepted++;
    response.writeHead(shop.mode === "ok" ? 200 : 500).end(shop.mode === "ok" ? "taken" : "out of order");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  shop.host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  shop.url = `http://${shop.host}`;
  shop.close = () => {
    server.closeAllConnections();
    server.close();
  };
  return shop;
}

const found = await launchBrowser();

describe.skipIf(typeof found === "string")("incidents", () => {
  if (typeof found === "string") return;
  beforeAll(() => {
    buildConsole();
  });
  afterAll(() => found.close());

  for (const { name, open, cause, told, isNote = false, within = 30_000, repair, healed } of incidents)
    // oxlint-disable-next-line vitest/valid-title -- each incident gives its own
    test(name, { timeout: 300_000 }, async ({ skip }) => {
      const place = open?.();
      if (place === null) return skip("this machine has no place for it");
      const shop = await openShop();
      const args = place ? ["--data", place.data] : [];
      const server = await startConsoleServer({ isEmpty: true, args });
      const context = await found.newContext({
        viewport: { width: 1440, height: 900 },
        reducedMotion: "reduce",
      });
      try {
        const world = { server, shop };
        const page = await context.newPage();
        page.setDefaultTimeout(60_000);
        await signIn(page, server);
        await cause(world);
        await openPage(page, server, "/");
        const row = page.locator("ul.needs li").filter({ hasText: told ?? "" });
        if (told !== null) {
          await row.first().waitFor({ timeout: 2 * within });
          expect(await page.getByText("Nothing needs attention").count()).toBe(isNote ? 1 : 0);
        }
        const onCall = new OnCall(page);
        const beganAt = performance.now();
        await repair(onCall, world, row.first());
        await expect.poll(() => healed(world), { timeout: 60_000, interval: 250 }).toBe(true);
        const seconds = Math.round((performance.now() - beganAt) / 1000);
        process.stdout.write(`${name}: repaired with ${onCall.clicks} clicks in ${seconds} s\n`);
        expect(onCall.clicks).toBeLessThanOrEqual(mostClicks);
      } finally {
        await context.close();
        shop.close();
        await server.close();
        place?.close();
      }
    });
});
