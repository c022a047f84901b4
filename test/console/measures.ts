import { createRequire } from "node:module";
import type { Locator, Page } from "playwright-core";

const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

export const expectShown = (locator: Locator): Promise<void> => locator.waitFor();

/** Returns what axe finds serious or critical: the rule, and where. */
export async function findViolations(page: Page): Promise<string[]> {
  // The policy of the page lets no other script run, so axe runs in an isolated world.
  const session = await page.context().newCDPSession(page);
  const { readFileSync } = await import("node:fs");
  const { frameTree } = await session.send("Page.getFrameTree");
  const { executionContextId } = await session.send("Page.createIsolatedWorld", {
    frameId: frameTree.frame.id,
  });
  const run = (expression: string) =>
    session.send("Runtime.evaluate", {
      expression,
      contextId: executionContextId,
      awaitPromise: true,
      returnByValue: true,
    });
  await run(readFileSync(axe, "utf8"));
  const { result } = await run(
    "axe.run(document, {resultTypes: ['violations']}).then(({violations}) => violations" +
      ".filter(({impact}) => impact === 'serious' || impact === 'critical')" +
      ".flatMap(({id, nodes}) => nodes.map(({target, failureSummary: why}) => `${id}: ${target} ${why}`)))",
  );
  await session.detach();
  return result.value as string[];
}

/** Counts how far things move by themselves on the next page that is opened. It is plain JavaScript. */
export const countShifts = `
  globalThis.layoutShift = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (!entry.hadRecentInput) globalThis.layoutShift += entry.value;
  }).observe({ type: "layout-shift", buffered: true });
`;

export const readShifts = (page: Page): Promise<number> =>
  page.evaluate(() => Number(Reflect.get(globalThis, "layoutShift") ?? -1));
