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

/** Notes what moves by itself on the next page that is opened, and how far. It is plain JavaScript. */
export const countShifts = `
  globalThis.shifts = [];
  const place = ({ left, top, width, height }) => [left, top, width, height].map(Math.round).join(" ");
  new PerformanceObserver((list) => {
    for (const { hadRecentInput, value, sources } of list.getEntries()) {
      if (hadRecentInput) continue;
      const moved = sources.map(({ node, previousRect, currentRect }) => {
        const what = (node?.parentElement?.className ?? "") + " “" + (node?.textContent ?? "").slice(0, 60);
        return what + "” " + place(previousRect) + " to " + place(currentRect);
      });
      globalThis.shifts.push(value + ": " + moved.join("; "));
    }
  }).observe({ type: "layout-shift", buffered: true });
`;

/** Returns what has moved by itself: how far, its text, and where it was and is. */
export const readShifts = (page: Page): Promise<string[]> =>
  page.evaluate(() => (Reflect.get(globalThis, "shifts") ?? ["nothing was measured"]) as string[]);

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
