import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";
import type { Browser, BrowserContext, Locator, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { buildConsole } from "../../scripts/buildConsole.js";
import { launchBrowser } from "./chromium.ts";
import type { ConsoleServer } from "./consoleServer.ts";
import { startConsoleServer, operatorPassword } from "./consoleServer.ts";
import { listPages, openPage, signIn } from "./pages.ts";

const found = await launchBrowser();
if (typeof found === "string") process.stderr.write(`the tests of the console are skipped: ${found}\n`);
const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

/** The pages that `npm test` checks. `npm run test:long` checks the others. */
const quickPages = ["overview", "messages", "message", "dead letter", "run", "publish"];
const otherPages = Object.keys(listPages()).filter((name) => !quickPages.includes(name));

describe.skipIf(typeof found === "string")("the console in a browser", () => {
  const browser = found as Browser;
  let server: ConsoleServer;
  let context: BrowserContext;
  let page: Page;
  /** Errors of scripts and violations of the Content-Security-Policy that the page has reported. */
  const reports: string[] = [];

  beforeAll(async () => {
    buildConsole();
    server = await startConsoleServer();
    context = await newContext();
    page = await context.newPage();
    page.on("pageerror", (error) => reports.push(error.message));
    page.on("console", (message) => message.type() === "error" && reports.push(message.text()));
    await signIn(page, server);
  });
  afterAll(async () => {
    await browser.close();
    await server.close();
  });
  const newContext = async (): Promise<BrowserContext> => {
    const made = await browser.newContext({
      viewport: { width: 1280, height: 900 },
      locale: "en-US",
      reducedMotion: "reduce",
    });
    made.setDefaultTimeout(10_000);
    return made;
  };

  test("the printed address signs in once, without the token in it", async () => {
    expect(server.signIn).not.toContain(server.token);
    expect(page.url()).not.toContain("code=");
    const other = await (await newContext()).newPage();
    await other.goto(server.signIn);
    await expectShown(other.getByRole("button", { name: "Sign in" }));
    await other.context().close();
  });

  test("an account logs in with its password and logs out, and a wrong password is refused", async () => {
    const other = await (await newContext()).newPage();
    await openLogin(other, server);
    await other.getByLabel("Account").fill("testUser1");
    await other.getByLabel("Password").fill("wrong");
    await other.getByRole("button", { name: "Sign in" }).click();
    await expectShown(other.getByRole("alert").getByText("wrong or was replaced"));
    await other.getByLabel("Password").fill("testPassword");
    await other.getByLabel("Your name").fill("maria");
    await other.getByRole("button", { name: "Sign in" }).click();
    await expectShown(other.getByRole("heading", { name: "Nothing needs attention" }));
    await expectShown(other.getByRole("heading", { name: "No messages yet" }));
    await other.getByRole("button", { name: "testUser1" }).click();
    await other.getByRole("button", { name: "Log out" }).click();
    await expectShown(other.getByRole("button", { name: "Sign in" }));
    await other.context().close();
  });

  test("the operator switches to an account", async () => {
    const other = await (await newContext()).newPage();
    await openLogin(other, server);
    await other.getByRole("button", { name: "Operator" }).click();
    await other.getByLabel("Password").fill(operatorPassword);
    await other.getByRole("button", { name: "Sign in" }).click();
    await other.getByRole("button", { name: "No account" }).click();
    await other.getByLabel("Switch to account").selectOption("testUser1");
    await expectShown(other.getByRole("button", { name: "testUser1" }));
    await other.getByRole("link", { name: "Operator" }).click();
    const row = other.getByRole("row").filter({ hasText: "testUser2" });
    await row.getByRole("button", { name: "Switch" }).click();
    await expectShown(other.getByRole("button", { name: "testUser2" }));
    expect(await findViolations(other)).toEqual([]);
    await other.context().close();
  });

  test("a read-only session shows no button that changes anything", async () => {
    const made = (await (
      await fetch(`${server.url}/v2/tokens`, {
        method: "POST",
        headers: { authorization: `Bearer ${server.token}` },
        body: JSON.stringify({ name: "looks", verbs: ["read"] }),
      })
    ).json()) as { token: string };
    const other = await (await newContext()).newPage();
    await openLogin(other, server);
    await other.getByRole("button", { name: "Token" }).click();
    await other.getByRole("textbox", { name: "Token" }).fill(made.token);
    await other.getByRole("button", { name: "Sign in" }).click();
    await expectShown(other.locator("nav.side"));
    for (const open of Object.values(listPages())) {
      await open(other, server);
      const names = await other.locator("main button, aside button, main a.btn").allInnerTexts();
      expect(
        names.filter((name) =>
          /^(Resume|Pause|Cancel|Delete|New|Set|Retry|Publish|Revoke)\b/.test(name.trim()),
        ),
      ).toEqual([]);
    }
    await other.context().close();
  });

  const expectAccessible = async (name: string): Promise<void> => {
    for (const theme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme: theme });
      await listPages()[name]?.(page, server);
      expect(await findViolations(page), theme).toEqual([]);
    }
  };
  test.each(quickPages)("axe finds nothing serious on: %s", (name) => expectAccessible(name));
  test.each(otherPages)("axe finds nothing serious on: %s", { tags: "long" }, (name) =>
    expectAccessible(name),
  );

  const expectStill = async (name: string): Promise<void> => {
    await page.setViewportSize({ width: 360, height: 780 });
    await listPages()[name]?.(page, server);
    const width = await page.locator("html").evaluate((html) => html.scrollWidth);
    expect(width).toBeLessThanOrEqual(360);
    await page.setViewportSize({ width: 1280, height: 900 });
    await page.addInitScript({ content: countShifts });
    for (const order of ["first", "last"]) {
      let asked = 0;
      await page.route("**/v2/**", async (route) => {
        if (order === "last") await sleep(Math.max(0, 400 - 100 * asked++));
        await route.continue();
      });
      await listPages()[name]?.(page, server);
      expect(await readShifts(page), `what is asked first is answered ${order}`).toBe(0);
      await page.unrouteAll({ behavior: "ignoreErrors" });
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

  test("a paused queue is resumed from the overview, and it can be undone", async () => {
    await openPage(page, server, "/");
    await page.getByRole("button", { name: "Resume queue" }).click();
    await expectShown(page.getByText("Queue returns is resumed"));
    await page.getByRole("button", { name: "Undo" }).click();
    await expectShown(page.getByText("Undone"));
    await expectShown(page.getByText("Queue returns is paused"));
  });

  test("a message is found by a pasted id, says why it waits, and who is ahead of it", async () => {
    await openPage(page, server, "/messages?queueName=parcels&state=held");
    const id = (await page.locator("tbody .id").first().getAttribute("title")) ?? "";
    await openPage(page, server, "/");
    await page.keyboard.press("Control+k");
    await page.getByRole("combobox", { name: "Search or paste an id" }).fill(id);
    await page.keyboard.press("Enter");
    const drawer = page.getByRole("complementary", { name: `Message ${id}` });
    await expectShown(drawer.getByText("Queue parcels is at capacity"));
    await drawer.getByRole("link", { name: "Message ahead" }).click();
    await expectShown(page.locator(".drawer").getByText("Being sent"));
    await page.keyboard.press("Escape");
    await page.locator(".drawer").waitFor({ state: "detached" });
  });

  test("a list is walked by the keyboard alone", async () => {
    await openPage(page, server, "/messages?state=paused");
    for (const key of ["j", "j", "k", "Enter"]) await page.keyboard.press(key);
    await expectShown(page.locator(".drawer"));
    await page.keyboard.press("Escape");
    await page.keyboard.press("g");
    await page.keyboard.press("q");
    await expectShown(page.getByRole("heading", { name: "Queues" }));
    await page.keyboard.press("?");
    await expectShown(page.getByRole("dialog", { name: "Keys" }));
    await page.keyboard.press("Escape");
  });

  test("filters are in the address, and a bulk action is a dry run first", async () => {
    await openPage(page, server, "/messages");
    await page.getByRole("searchbox", { name: "Filter" }).fill("reminder");
    await page.keyboard.press("Enter");
    await page.waitForURL(/label=reminder/);
    await page.getByRole("button", { name: /Act on all/ }).click();
    await expectShown(page.getByRole("heading", { name: "Cancel 1 message" }));
    await page.getByRole("button", { name: "Cancel 1", exact: true }).click();
    const dialog = page.getByRole("dialog", { name: "Cancel 1 message" });
    await dialog.getByRole("button", { name: "Cancel 1", exact: true }).click();
    await expectShown(page.getByText("No unfinished message matches these filters"));
  });

  test("hostile payloads run nothing, and hidden characters are shown", async () => {
    await listPages()["dead letter"]?.(page, server);
    const body = page.locator(".drawer").getByLabel("Body of the message", { exact: true });
    const text = await body.innerText();
    for (const shown of ["RLO", "ZWSP", "9007199254740993", "1.50", "<img src=x onerror"])
      expect(text).toContain(shown);
    const links = await body
      .locator("a")
      .evaluateAll((all) => all.map((one) => [one.getAttribute("href"), one.getAttribute("rel")]));
    expect(links).toEqual([["https://maps.example/p/81", "noreferrer noopener"]]);
    expect(await page.title()).not.toContain("owned");
    expect(await page.locator("img, iframe, object").count()).toBe(0);
  });

  test("a failed run is resumed, and the new run is watched until it succeeds", async () => {
    server.destinations.failsReceipt = false;
    await openPage(page, server, "/runs/order-48214");
    await page.getByRole("button", { name: "Resume" }).click();
    await expectShown(page.getByText("The run is resumed from the failed step"));
    await page.getByText("Resumed as").locator("..").getByRole("link").click();
    await expectShown(page.locator(".hero").getByText("Success"));
  });

  test("a dead letter is retried from its group, after a dry run", async () => {
    await openPage(page, server, "/dead-letters");
    const group = page.locator("article.group").filter({ hasText: "422" });
    await group.getByRole("button", { name: "Retry" }).click();
    await expectShown(page.getByRole("heading", { name: "Retry 2 dead letters" }));
    await page.getByRole("button", { name: "Retry 2", exact: true }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Retry 2", exact: true }).click();
    const bulk = page.getByRole("region", { name: "Retry dead letters" });
    // The destination still fails, so the job ends after its canary, and nothing else was sent.
    await expectShown(bulk.getByText("Failed", { exact: true }));
    await expectShown(bulk.getByText("1 unchanged"));
  });

  test("a job without a canary goes through, and the list of jobs has it", async () => {
    await openPage(page, server, "/dead-letters?label=parcel-977");
    await page.getByRole("button", { name: "Act on all" }).click();
    await page.getByRole("checkbox", { name: /Canary/ }).uncheck();
    await page.getByRole("button", { name: "Delete", exact: true }).click();
    await page.getByRole("button", { name: "Delete 5", exact: true }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Delete 5", exact: true }).click();
    await expectShown(page.getByRole("region", { name: "Delete dead letters" }).getByText("Done"));
    await openPage(page, server, "/jobs");
    await expectShown(page.locator(".job").first().getByText("Delete 5 dead letters"));
  });

  test("a slow job continues when its page is left, and can be stopped", async () => {
    for (let at = 0; at < 5; at++)
      await fetch(`${server.url}/v2/publish/${server.destinations.url}/ok/slow-job`, {
        method: "POST",
        headers: { authorization: `Bearer ${server.token}`, "svc-delay": "1d", "svc-label": "slow-job" },
      });
    await openPage(page, server, "/messages?label=slow-job");
    await page.getByRole("button", { name: "Act on all" }).click();
    await page.getByLabel("Maximum per second").fill("1");
    await page.getByRole("button", { name: "Cancel 5", exact: true }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Cancel 5", exact: true }).click();
    await page.getByRole("link", { name: "All jobs" }).click();
    const job = page.locator(".job").first();
    await expectShown(job.getByText("Cancel 5 messages"));
    await job.getByRole("button", { name: "Stop" }).click();
    await expectShown(job.getByText("Stopped"));
  });

  test("a message is published with settings, and found by its link", async () => {
    await openPage(page, server, "/publish");
    await page.getByRole("textbox", { name: "Destination" }).fill(`${server.destinations.url}/ok/published`);
    await page.getByLabel("Body", { exact: true }).fill('{"from": "the console"}');
    await page.getByLabel("Delay", { exact: true }).fill("1h");
    await page.locator("form").getByRole("button", { name: "Publish" }).click();
    await page.getByRole("status").getByRole("link", { name: /^msg_/ }).click();
    await expectShown(page.locator(".drawer").getByText("the console"));
    await page.getByRole("button", { name: "Send now" }).click();
    await expectShown(page.getByText("The message is sent now"));
  });

  test("a token is created, shown once, and revoked", async () => {
    await openPage(page, server, "/settings");
    await page.getByRole("button", { name: "New token" }).click();
    await page.getByLabel("Name").fill("from the console");
    await page.getByRole("button", { name: "Create token" }).click();
    await expectShown(page.getByRole("heading", { name: "Token “from the console” is created" }));
    const row = page.getByRole("row").filter({ hasText: "from the console" });
    await row.getByRole("button", { name: "Revoke" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Revoke token" }).click();
    await row.waitFor({ state: "detached" });
    expect(await row.count()).toBe(0);
  });

  test("no script failed and no CSP report came on any page", () => {
    // The browser reports each refused request as an error; these are the ones that the tests cause.
    expect(reports.filter((text) => !/status of (401|404)/.test(text))).toEqual([]);
  });
});

const expectShown = (locator: Locator): Promise<void> => locator.waitFor();

async function openLogin(page: Page, { url }: ConsoleServer): Promise<void> {
  await page.goto(`${url}/console/`);
  await expectShown(page.getByRole("button", { name: "Sign in" }));
}

/** Returns what axe finds serious or critical: the rule, and where. */
async function findViolations(page: Page): Promise<string[]> {
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
const countShifts = `
  globalThis.layoutShift = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (!entry.hadRecentInput) globalThis.layoutShift += entry.value;
  }).observe({ type: "layout-shift", buffered: true });
`;

const readShifts = (page: Page): Promise<number> =>
  page.evaluate(() => Number(Reflect.get(globalThis, "layoutShift") ?? -1));
