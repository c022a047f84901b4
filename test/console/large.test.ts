import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { makeRun } from "./manySteps.ts";
import { expectShown } from "./measures.ts";
import { describeConsole } from "./openConsole.ts";
import { openPage } from "./pages.ts";
import { call } from "./seed.ts";

/** The number of steps of the run, and of unfinished messages. */
const steps = 10_000;
const messages = 20_000;

describeConsole(
  "large runs and lists",
  (open) => {
    test("a run with 10,000 steps is folded, drawn in part, and responds to each press", async () => {
      const { page, server } = open;
      // No program runs 10,000 steps within a test, so the response for this run is made here.
      const run = makeRun(steps, steps - 500);
      await page.route("**/v2/workflows/logs?*", (route) => route.fulfill({ json: { runs: [run] } }));
      await page.addInitScript({ content: recordInputs });
      await openPage(page, server, "/runs/many-steps");
      await expectShown(page.locator(".tl-detail p.err").getByText("no response"));
      await page.locator(".tl-row.fold").first().click();
      expect(await page.locator(".tl-row").count()).toBeLessThan(200);
      for (let at = 0; at < 10; at++) {
        await page.mouse.wheel(0, 30_000);
        await page.locator(".tl-row:not(.open)").nth(30).click();
        await expectShown(page.locator(".tl-detail"));
      }
      await page.keyboard.press("f");
      await expectShown(page.locator(".tl-row.open").getByText(`page ${steps - 499}`, { exact: true }));
      await reportInputs(page, `${steps} steps`);
      await page.unrouteAll({ behavior: "ignoreErrors" });
    });

    test("a list over 20,000 messages responds to each key", async () => {
      const { page, server } = open;
      await openPage(page, server, "/messages?label=many");
      await expectShown(page.getByText(/of [\d,]+/).first());
      for (let at = 0; at < 40; at++) await page.keyboard.press("j");
      for (let at = 0; at < 5; at++) {
        await page.keyboard.press("j");
        await page.keyboard.press("Enter");
        await expectShown(page.locator(".drawer .gates"));
        await page.keyboard.press("Escape");
        await page.locator(".drawer").waitFor({ state: "detached" });
      }
      await page.getByRole("button", { name: "Next" }).click();
      await page.waitForURL(/cursor=/);
      await reportInputs(page, `${messages} messages`);
    });
  },
  { fill: publishMany, tags: ["long"] },
);

async function publishMany({
  token,
  url,
  destinations,
}: {
  token: string;
  url: string;
  destinations: { url: string };
}) {
  const one = {
    destination: `${destinations.url}/ok/many`,
    headers: { "Svc-Delay": "1d", "Svc-Label": "many" },
    body: "{}",
  };
  const body = JSON.stringify(Array.from({ length: 100 }, () => one));
  for (let at = 0; at < messages; at += 100) await call({ token, url }, "POST /v2/batch", { body });
}

/** Records how long each input takes until the next paint. It is plain JavaScript for the page. */
const recordInputs = `
  globalThis.inputs = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (entry.interactionId) globalThis.inputs.push(entry.duration);
  }).observe({ type: "event", durationThreshold: 16, buffered: true });
`;

/** Prints the time from input to paint, as the browser measured it. Inputs below 16 ms are not recorded. */
async function reportInputs(page: Page, what: string): Promise<void> {
  const inputs = (await page.evaluate(() => Reflect.get(globalThis, "inputs") ?? [])) as number[];
  const sorted = inputs.toSorted((one, other) => one - other);
  const p75 = sorted[Math.floor(sorted.length * 0.75)];
  process.stdout.write(
    `${what}: input to paint p75 ${p75 ?? "below 16"} ms, max ${sorted.at(-1) ?? "below 16"} ms, ` +
      `of ${sorted.length} inputs\n`,
  );
  expect(Array.isArray(inputs)).toBe(true);
}
