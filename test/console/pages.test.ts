import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { countShifts, findHeadingJumps, findViolations, readShifts } from "./measures.ts";
import { describeConsole } from "./openConsole.ts";
import { listDialogs, listPages } from "./pages.ts";

/** The pages that `npm test` checks. `npm run test:long` checks the others. */
const quickPages = ["overview", "messages", "message", "run"];
const otherPages = Object.keys(listPages()).filter((name) => !quickPages.includes(name));

describeConsole("every page of the console", (open) => {
  const expectAccessible = async (name: string): Promise<void> => {
    for (const theme of ["light", "dark"] as const) {
      await open.page.emulateMedia({ colorScheme: theme });
      await listPages()[name]?.(open.page, open.server);
      expect(await findViolations(open.page), theme).toEqual([]);
    }
    expect(await findHeadingJumps(open.page)).toEqual([]);
  };
  test.each(quickPages)("axe finds nothing serious on: %s", (name) => expectAccessible(name));
  test.each(otherPages)("axe finds nothing serious on: %s", { tags: "long" }, (name) =>
    expectAccessible(name),
  );

  test.each(Object.entries(listDialogs()))(
    "axe finds nothing serious, and nothing sticks out at 360 px, on: %s",
    { tags: "long" },
    async (_name, visit) => {
      for (const [colorScheme, width] of [
        ["light", 1280],
        ["dark", 360],
      ] as const) {
        await open.page.emulateMedia({ colorScheme });
        await open.page.setViewportSize({ width, height: 780 });
        await visit(open.page, open.server);
        expect(await findViolations(open.page), `${width} px`).toEqual([]);
        expect(await findHeadingJumps(open.page)).toEqual([]);
        const found = await open.page
          .locator("html, dialog[open], .pop")
          .evaluateAll((all) => all.map((one) => one.scrollWidth - one.clientWidth));
        expect(Math.max(...found), `${width} px`).toBeLessThanOrEqual(0);
      }
      await open.page.setViewportSize({ width: 1280, height: 900 });
    },
  );

  const expectStill = async (name: string): Promise<void> => {
    await open.page.setViewportSize({ width: 360, height: 780 });
    await listPages()[name]?.(open.page, open.server);
    const width = await open.page.locator("html").evaluate((html) => html.scrollWidth);
    expect(width).toBeLessThanOrEqual(360);
    await open.page.addInitScript({ content: countShifts });
    for (const [order, size] of [
      ["last", { width: 360, height: 780 }],
      ["first", { width: 1280, height: 900 }],
      ["last", { width: 1280, height: 900 }],
    ] as const) {
      await open.page.setViewportSize(size);
      let asked = 0;
      let waiting = 0;
      await open.page.route("**/v2/**", async (route) => {
        waiting++;
        // The page is painted between two answers, as with a slow network.
        await sleep(order === "last" ? Math.max(0, 400 - 100 * asked++) : 60);
        await route.continue();
        // The answer comes soon, and so does what the page asks because of it.
        await sleep(100);
        waiting--;
      });
      await listPages()[name]?.(open.page, open.server);
      await expect.poll(() => waiting).toBe(0);
      expect(
        await readShifts(open.page),
        `${size.width} px, what is asked first is answered ${order}`,
      ).toEqual([]);
      await open.page.unrouteAll({ behavior: "ignoreErrors" });
    }
  };
  test.each(quickPages)("nothing sticks out at 360 px, and nothing moves by itself, on: %s", (name) =>
    expectStill(name),
  );
  test.each(otherPages)(
    "nothing sticks out at 360 px, and nothing moves by itself, on: %s",
    { tags: "long" },
    (name) => expectStill(name),
  );
});
