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

/** Returns the visible headings that come first and are not of level 1, or that leave out a level. */
export const findHeadingJumps = (page: Page): Promise<string[]> =>
  page.evaluate<string[]>(`(() => {
    const found = [];
    // While a dialog is open, a screen reader sees nothing else. Its title is of level 2.
    const dialog = document.querySelector("dialog:modal");
    let before = dialog ? 1 : 0;
    for (const one of (dialog ?? document).querySelectorAll("h1, h2, h3, h4, h5, h6")) {
      if (!one.checkVisibility()) continue;
      const level = Number(one.tagName[1]);
      if (level > before + 1) found.push(one.tagName + " " + one.textContent);
      before = level;
    }
    return found;
  })()`);
