import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { countShifts, findViolations, readShifts } from "./measures.ts";
import { describeConsole } from "./openConsole.ts";
import { listPages } from "./pages.ts";

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
  };
  test.each(quickPages)("axe finds nothing serious on: %s", (name) => expectAccessible(name));
  test.each(otherPages)("axe finds nothing serious on: %s", { tags: "long" }, (name) =>
    expectAccessible(name),
  );

  const expectStill = async (name: string): Promise<void> => {
    await open.page.setViewportSize({ width: 360, height: 780 });
    await listPages()[name]?.(open.page, open.server);
    const width = await open.page.locator("html").evaluate((html) => html.scrollWidth);
    expect(width).toBeLessThanOrEqual(360);
    await open.page.setViewportSize({ width: 1280, height: 900 });
    await open.page.addInitScript({ content: countShifts });
    for (const order of ["first", "last"]) {
      let asked = 0;
      await open.page.route("**/v2/**", async (route) => {
        if (order === "last") await sleep(Math.max(0, 400 - 100 * asked++));
        await route.continue();
      });
      await listPages()[name]?.(open.page, open.server);
      expect(await readShifts(open.page), `what is asked first is answered ${order}`).toBe(0);
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
