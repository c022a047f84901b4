import type { Page, Route } from "playwright-core";
import { expect, test } from "vitest";
import { operatorPassword } from "./consoleServer.ts";
import { expectShown, findHeadingJumps, findViolations } from "./measures.ts";
import { describeConsole } from "./openConsole.ts";
import { openPage } from "./pages.ts";

/** The pages of a server without data, and the heading of each. */
const emptyPages: readonly (readonly [path: string, heading: string])[] = [
  ["/", "No messages yet"],
  ["/messages", "No unfinished messages"],
  ["/messages?view=log", "No log entries"],
  ["/messages?label=none", "No unfinished message matches these filters"],
  ["/dead-letters", "No dead letters"],
  ["/runs", "No runs"],
  ["/runs/none", "Run not found"],
  ["/failed-runs", "No failed runs"],
  ["/queues", "No queues yet"],
  ["/keys", "No keys yet"],
  ["/hosts", "No recent deliveries"],
  ["/schedules", "No schedules yet"],
  ["/url-groups", "No URL groups yet"],
  ["/sources", "No sources yet"],
  ["/outboxes", "No outboxes yet"],
  ["/events", "No run waits for an event"],
  ["/jobs", "No jobs yet"],
  ["/tail", "No entries yet"],
  ["/settings", "No tokens yet"],
  ["/settings?part=pulled", "No pulled origins yet"],
  ["/nowhere", "There is no page at this address"],
];

/** Pages with a list, a drawer or figures that can fail to load. */
const readingPages = ["/", "/messages", "/messages?open=msg_1", "/runs/1", "/queues/one", "/settings"];

describeConsole(
  "the console without data, with errors, and before the log-in",
  (open) => {
    test.each(emptyPages)("without data, %s says: %s", async (path, heading) => {
      await openPage(open.page, open.server, path);
      await expectShown(open.page.getByRole("heading", { name: heading }));
      await expectUsable(open.page);
    });

    test.each(readingPages)("an error on %s says what happened, and offers to try again", async (path) => {
      const { page, server } = open;
      await failUntilPressed(page, (route) => route.fulfill({ status: 409, body: '{"error": "not now"}' }));
      await openPage(page, server, path);
      await expectShown(page.getByRole("alert").filter({ hasText: "409 not now." }).last());
      await expectUsable(page);
      await pressToRead(page, "Try again");
      await page.getByRole("alert").filter({ hasText: "409 not now." }).last().waitFor({ state: "detached" });
      await page.unrouteAll({ behavior: "ignoreErrors" });
    });

    test("a server that fails or is gone is named, and what was read stays", async () => {
      const { server } = open;
      // Its errors are not reported: the browser names each failed request.
      const page = await open.page.context().newPage();
      await page.route("**/v2/**", (route) => route.fulfill({ status: 500, body: '{"error": "broken"}' }));
      await openPage(page, server, "/queues");
      await expectShown(page.getByRole("alert").getByText("500"));
      await page.unrouteAll({ behavior: "ignoreErrors" });
      // The page has read nothing yet, so it shows no state of any age.
      await page.route("**/v2/**", (route) => route.abort());
      await page.goto(`${server.url}/console/queues`);
      await expectShown(page.getByRole("alert").getByText("The server does not respond"));
      expect(await page.getByText("This page shows the state of").count()).toBe(0);
      await page.route("**/v2/**", (route) => route.fulfill({ status: 500, body: '{"error": "broken"}' }));
      await expectShown(page.getByRole("alert").getByText("500"));
      await page.getByText("The server does not respond").waitFor({ state: "detached" });
      await page.unrouteAll({ behavior: "ignoreErrors" });
      await openPage(page, server, "/queues");
      await failUntilPressed(page, (route) => route.abort());
      await expectShown(page.getByRole("alert").getByText("The server does not respond"));
      await expectShown(page.getByText("This page shows the state of"));
      await expectShown(page.getByRole("button", { name: "No connection" }));
      await expectShown(page.getByRole("heading", { name: "No queues yet" }));
      await expectUsable(page);
      await pressToRead(page, "Try now");
      await expectShown(page.getByRole("button", { name: "Live", exact: true }));
      await page.close();
    });

    test("the log-in and a refusal of it, and the pages of the operator", async () => {
      const page = await (await open.newContext()).newPage();
      await page.goto(`${open.server.url}/console/`);
      await expectShown(page.getByRole("button", { name: "Sign in" }));
      await expectUsable(page);
      await page.getByRole("button", { name: "Operator" }).click();
      await page.getByLabel("Password").fill("wrong");
      await page.getByLabel("Password").press("Enter");
      await expectShown(page.getByRole("alert"));
      await expectUsable(page);
      await page.getByLabel("Password").fill(operatorPassword);
      await page.getByLabel("Password").press("Enter");
      await expectShown(page.getByRole("heading", { name: "Operator", level: 1 }));
      await expectUsable(page);
      await expectShown(page.getByRole("row").filter({ hasText: "testUser1" }));
      await expectUsable(page);
      await page.context().close();
    });
  },
  { isEmpty: true, tags: ["long"] },
);

/**
 * Expects no serious finding of axe in both themes, headings in order, and nothing that sticks out at 360 px.
 */
async function expectUsable(page: Page): Promise<void> {
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme });
    expect(await findViolations(page), colorScheme).toEqual([]);
  }
  expect(await findHeadingJumps(page)).toEqual([]);
  await page.setViewportSize({ width: 360, height: 780 });
  const width = await page.locator("html").evaluate((html) => html.scrollWidth);
  await page.setViewportSize({ width: 1280, height: 900 });
  expect(width).toBeLessThanOrEqual(360);
}

/** Lets `fail` answer the reads of a page until a button is pressed by `pressToRead`. */
async function failUntilPressed(page: Page, fail: (route: Route) => Promise<void>): Promise<void> {
  await page.route("**/v2/**", async (route) => {
    const isPressed = await page.evaluate(() => Reflect.has(globalThis, "pressed")).catch(() => false);
    await (isPressed ? route.continue() : fail(route));
  });
}

/**
 * Presses a button, and expects that it reads at once. A page also reads every few seconds, which can take
 * the button away. So the server is back at the moment of the press, not before.
 */
async function pressToRead(page: Page, name: string): Promise<void> {
  const pressAndCountReads = `(async () => {
    const name = "${name}";
    const button = [...document.querySelectorAll("button")].findLast((one) => one.textContent === name);
    if (button === undefined) return 0;
    let reads = 0;
    const { fetch } = globalThis;
    globalThis.fetch = (...sent) => {
      reads += 1;
      return fetch(...sent);
    };
    globalThis.pressed = true;
    button.click();
    await Promise.resolve();
    globalThis.fetch = fetch;
    return reads;
  })()`;
  await expect.poll(() => page.evaluate(pressAndCountReads), { timeout: 120_000 }).toBeGreaterThan(0);
}
