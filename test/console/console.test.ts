import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import type { ConsoleServer } from "./consoleServer.ts";
import { operatorPassword } from "./consoleServer.ts";
import { countShifts, expectShown, findViolations, readShifts } from "./measures.ts";
import { describeConsole } from "./openConsole.ts";
import { listPages, openPage } from "./pages.ts";
import { call } from "./seed.ts";

describeConsole("sessions and the main ways of the console", (open) => {
  const { newContext } = open;
  test("the printed address signs in once, without the token in it", async () => {
    expect(open.server.signIn).not.toContain(open.server.token);
    expect(open.page.url()).not.toContain("code=");
    const other = await (await newContext()).newPage();
    await other.goto(open.server.signIn);
    await expectShown(other.getByRole("button", { name: "Sign in" }));
    expect(await other.getByLabel("Your name", { exact: true }).count()).toBe(1);
    // A further code in the tab that shows the log-in.
    let asked = 0;
    await other.route("**/console/session", (route) => {
      asked += route.request().postData()?.includes("another-code") ? 1 : 0;
      return route.continue();
    });
    await other.goto(`${open.server.url}/console/#code=another-code`);
    await expect.poll(() => asked).toBe(1);
    expect(other.url()).not.toContain("code=");
    await other.context().close();
  });

  test("an account logs in with its password and logs out, and a wrong password is refused", async () => {
    const other = await (await newContext()).newPage();
    await openLogin(other, open.server);
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
    await openLogin(other, open.server);
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
    await other.getByRole("link", { name: "Operator" }).click();
    await expectShown(other.getByRole("region", { name: "This server" }).getByText("Accepts messages"));
    await expectShown(other.getByRole("region", { name: "Nodes" }).getByText("Running"));
    expect(await findViolations(other)).toEqual([]);
    await other.context().close();
  });

  test("a session whose token is revoked ends on the page, and shows the log-in", async () => {
    const body = JSON.stringify({ name: "ends", verbs: ["read"] });
    const made = (await call(open.server, "POST /v2/tokens", { body })) as { token: string; tokenId: string };
    const other = await (await newContext()).newPage();
    await openLogin(other, open.server);
    await other.getByRole("button", { name: "Token" }).click();
    await other.getByRole("textbox", { name: "Token" }).fill(made.token);
    await other.getByRole("button", { name: "Sign in" }).click();
    await expectShown(other.locator("nav.side"));
    await call(open.server, `DELETE /v2/tokens/${made.tokenId}`);
    await expectShown(other.getByRole("button", { name: "Sign in" }));
    expect(await other.locator("nav.side").count()).toBe(0);
    await other.context().close();
  });

  const expectReadOnly = async (names: readonly string[]): Promise<void> => {
    const body = JSON.stringify({ name: "looks", verbs: ["read"] });
    const made = (await call(open.server, "POST /v2/tokens", { body })) as { token: string };
    const other = await (await newContext()).newPage();
    await openLogin(other, open.server);
    await other.getByRole("button", { name: "Token" }).click();
    await other.getByRole("textbox", { name: "Token" }).fill(made.token);
    await other.getByRole("button", { name: "Sign in" }).click();
    await expectShown(other.locator("nav.side"));
    for (const name of names) {
      await listPages()[name]?.(other, open.server);
      const texts = await other.locator("main button, aside button, main a.btn").allInnerTexts();
      const isWrite = /^(Resume|Pause|Cancel|Delete|New|Set|Settings|Edit|Add|Retry|Publish|Remove|Revoke)\b/;
      expect(
        texts.filter((text) => isWrite.test(text.trim())),
        name,
      ).toEqual([]);
    }
    await other.context().close();
  };
  test("a read-only session shows no button that changes anything on the main pages", () =>
    expectReadOnly(["overview", "messages", "queue", "dead letters", "run", "sources", "tokens"]));
  test("a read-only session shows no button that changes anything on any page", { tags: "long" }, () =>
    expectReadOnly(Object.keys(listPages())),
  );

  test("a paused queue is resumed from the overview, and it can be undone", async () => {
    await openPage(open.page, open.server, "/");
    await open.page.getByRole("button", { name: "Resume queue" }).click();
    await expectShown(open.page.getByText("Queue returns is resumed"));
    await open.page.getByRole("button", { name: "Undo" }).click();
    await expectShown(open.page.getByText("Undone"));
    await expectShown(open.page.getByText("Queue returns is paused"));
  });

  test("a message is found by a pasted id, says why it waits, and who is ahead of it", async () => {
    await openPage(open.page, open.server, "/messages?queueName=parcels&state=held");
    const id = (await open.page.locator("tbody .id").first().getAttribute("title")) ?? "";
    await openPage(open.page, open.server, "/");
    await open.page.keyboard.press("Control+k");
    await open.page.getByRole("combobox", { name: "Search or paste an id" }).fill(id);
    await open.page.keyboard.press("Enter");
    const drawer = open.page.getByRole("complementary", { name: `Message ${id}` });
    await expectShown(drawer.getByText("Queue parcels is at capacity"));
    await drawer.getByRole("link", { name: "Message ahead" }).click();
    await expectShown(open.page.locator(".drawer").getByText("Being sent"));
    await open.page.keyboard.press("Escape");
    await open.page.locator(".drawer").waitFor({ state: "detached" });
  });

  test("a queue shows what holds its slots, and a callback that still holds one", async () => {
    const { destinations } = open.server;
    const headers = {
      "svc-callback": `${destinations.url}/slow/callback`,
      "svc-timeout": "1h",
      "svc-label": "with a callback",
    };
    await call(open.server, `POST /v2/enqueue/empty/${destinations.url}/ok/first`, { headers });
    await openPage(open.page, open.server, "/queues/empty");
    const place = open.page.locator(".place");
    await expectShown(place.getByText("Callback", { exact: true }));
    await expectShown(open.page.getByText("of 2"));
    expect(await findViolations(open.page)).toEqual([]);
  });

  test("a list is walked by the keyboard alone", async () => {
    await openPage(open.page, open.server, "/messages?state=paused");
    for (const key of ["j", "j", "k", "Enter"]) await open.page.keyboard.press(key);
    await expectShown(open.page.locator(".drawer"));
    await open.page.keyboard.press("Escape");
    await open.page.locator(".drawer").waitFor({ state: "detached" });
    // The second key must follow the first within 1.5 s, which a busy machine may miss.
    const goToQueues = async (): Promise<string> => {
      for (const key of ["g", "q"]) await open.page.keyboard.press(key);
      return open.page.url();
    };
    await expect.poll(goToQueues, { interval: 1_000 }).toContain("/queues");
    await expectShown(open.page.getByRole("heading", { name: "Queues" }));
    await open.page.keyboard.press("?");
    await expectShown(open.page.getByRole("dialog", { name: "Keys" }));
    await open.page.keyboard.press("Escape");
  });

  test("a row opens by its own button; the focus goes into the drawer, and back to the row", async () => {
    const { page } = open;
    await openPage(page, open.server, "/messages?state=held");
    await page
      .getByRole("button", { name: /^Open msg_/ })
      .first()
      .focus();
    await page.keyboard.press("Enter");
    await expectShown(page.locator(".drawer .gates"));
    await expect.poll(() => isFocusIn(page, ".drawer")).toBe(true);
    await page.keyboard.press("Escape");
    await page.locator(".drawer").waitFor({ state: "detached" });
    await expect.poll(() => isFocusIn(page, ".row-open")).toBe(true);
  });

  test("a dialog keeps the focus, and gives it back when it is cancelled", async () => {
    const { page } = open;
    await openPage(page, open.server, "/queues");
    await page.getByRole("button", { name: "New queue" }).press("Enter");
    const dialog = page.getByRole("dialog", { name: "New queue" });
    await expectShown(dialog);
    for (let at = 0; at < 12; at++) {
      await page.keyboard.press("Tab");
      expect(await isFocusIn(page, ":is(a, button, input, select, textarea):not(dialog *)")).toBe(false);
    }
    await dialog.getByRole("button", { name: "Cancel" }).press("Enter");
    await dialog.waitFor({ state: "detached" });
    await expectShown(page.locator("button:focus").filter({ hasText: "New queue" }));
  });

  test("the menu of a narrow window opens and closes by the keyboard", async () => {
    const { page } = open;
    await page.setViewportSize({ width: 360, height: 780 });
    await openPage(page, open.server, "/queues");
    await page.getByRole("button", { name: "Menu" }).press("Enter");
    await expect.poll(() => isFocusIn(page, "nav.side")).toBe(true);
    await page.keyboard.press("Escape");
    await page.locator("nav.side").waitFor({ state: "hidden" });
    await expect.poll(() => isFocusIn(page, "#menu")).toBe(true);
    await page.getByRole("button", { name: "Menu" }).press("Enter");
    await page.getByRole("link", { name: "Keys" }).press("Enter");
    await expectShown(page.getByRole("heading", { name: "Keys" }));
    await expect.poll(() => isFocusIn(page, "main")).toBe(true);
    await page.setViewportSize({ width: 1280, height: 900 });
  });

  test("the navigation has the counts of the overview, with one request for several pages", async () => {
    const { page, server } = open;
    const side = page.locator("nav.side");
    let asked = 0;
    await page.route("**/v2/overview", (route) => {
      asked++;
      return route.continue();
    });
    await openPage(page, server, "/url-groups");
    const { deadLetters, paused } = (await call(server, "GET /v2/overview")) as {
      deadLetters: number;
      paused: Record<"queues" | "keys" | "schedules", { count: number }>;
    };
    expect(Math.min(deadLetters, paused.keys.count, paused.schedules.count)).toBeGreaterThan(0);
    for (const name of [`Keys ${paused.keys.count} paused`, `Schedules ${paused.schedules.count} paused`])
      await expectShown(side.getByRole("link", { name, exact: true }));
    // Dead letters are those of messages and of runs.
    await expectShown(side.getByRole("group", { name: `Failed: ${deadLetters}`, exact: true }));
    for (const name of ["Sources", "Events", "Hosts"]) {
      await side.getByRole("link", { name }).click();
      await expectShown(page.getByRole("heading", { name, level: 1 }));
    }
    expect(asked).toBe(1);
    await page.unrouteAll({ behavior: "ignoreErrors" });
  });

  test("the overview does not say that all is well if it could not be read", async () => {
    const { page } = open;
    await page.route("**/v2/**", (route) => route.fulfill({ status: 409, body: '{"error": "not now"}' }));
    await page.goto(`${open.server.url}/console/`);
    await expectShown(page.getByRole("heading", { name: "The overview is not complete" }));
    await expectShown(page.getByRole("alert").getByRole("button", { name: "Try again" }));
    await page.unrouteAll({ behavior: "ignoreErrors" });
  });

  test("the tail shows entries at its end, nothing moves, and pausing keeps them waiting", async () => {
    const { page } = open;
    const line = (label: string) => page.locator(".tail-row").filter({ hasText: label });
    await page.addInitScript({ content: countShifts });
    await openPage(page, open.server, "/tail?host=" + new URL(open.server.destinations.url).host);
    await expectShown(page.getByText("Follows the log"));
    await publishTo(open.server, "first-of-tail");
    await expectShown(line("first-of-tail").filter({ hasText: "Delivered" }));
    await page.keyboard.press("p");
    await expectShown(page.getByRole("region", { name: "Log" }).getByText("Paused"));
    await publishTo(open.server, "second-of-tail");
    await page.getByRole("button", { name: /^\d+ new$/ }).waitFor();
    expect(await line("second-of-tail").count()).toBe(0);
    await page.getByRole("button", { name: /^\d+ new$/ }).click();
    await expectShown(line("second-of-tail").first());
    expect(await readShifts(page)).toEqual([]);
    await line("second-of-tail").first().getByRole("button").click();
    await expectShown(page.getByRole("complementary", { name: /^Message msg_/ }));
    await page.keyboard.press("Escape");
  });

  test("hostile payloads run nothing, and hidden characters are shown", async () => {
    await listPages()["dead letter"]?.(open.page, open.server);
    const body = open.page.locator(".drawer").getByLabel("Body of the message", { exact: true });
    const text = await body.innerText();
    for (const shown of ["RLO", "ZWSP", "9007199254740993", "1.50", "<img src=x onerror"])
      expect(text).toContain(shown);
    const links = await body
      .locator("a")
      .evaluateAll((all) => all.map((one) => [one.getAttribute("href"), one.getAttribute("rel")]));
    expect(links).toEqual([["https://maps.example/p/81", "noreferrer noopener"]]);
    expect(await open.page.title()).not.toContain("owned");
    expect(await open.page.locator("img, iframe, object").count()).toBe(0);
  });

  test("a run is watched live: triggered, waiting, failed, resumed, and successful", async () => {
    const { page, server } = open;
    const { destinations } = server;
    destinations.failsReceipt = true;
    await openPage(page, server, "/runs");
    await page.evaluate("globalThis.isSamePage = true");
    await call(server, `POST /v2/trigger/${destinations.url}/workflows/order`, {
      headers: { "svc-workflow-runid": "order-live", "svc-retries": "0" },
      body: JSON.stringify({ id: "order-live", waits: true }),
    });
    await page.getByRole("button", { name: /^\d+ new$/ }).click();
    await page.getByRole("button", { name: "Open order-live" }).press("Enter");
    const step = (name: string) => page.locator(".tl-row").filter({ hasText: name });
    await expectShown(page.locator(".hero").getByText("Running"));
    await expectShown(step("shipped"));
    await expectShown(page.getByRole("button", { name: "Live" }));
    await call(server, "POST /v2/notify/shipped-order-live", { body: "{}" });
    await expectShown(page.locator(".hero").getByText("Failed"));
    await expectShown(step("send receipt"));
    await expectShown(page.getByRole("status").getByText("reading 'email'"));
    destinations.failsReceipt = false;
    await page.getByRole("button", { name: "Resume", exact: true }).click();
    await page.locator(".facts").getByText("Resumed as").locator("..").getByRole("link").click();
    await expectShown(page.locator(".hero").getByText("Success"));
    await expectShown(step("send receipt"));
    expect(await page.getByRole("button", { name: "Live" }).count()).toBe(0);
    expect(await page.evaluate("globalThis.isSamePage")).toBe(true);
  });

  test("a failed run is resumed, and the new run is watched until it succeeds", async () => {
    open.server.destinations.failsReceipt = false;
    await openPage(open.page, open.server, "/runs/order-48214");
    await open.page.getByRole("button", { name: "Resume", exact: true }).click();
    await expectShown(open.page.getByText("The run is resumed from the failed step"));
    await open.page.locator(".facts").getByText("Resumed as").locator("..").getByRole("link").click();
    await expectShown(open.page.locator(".hero").getByText("Success"));
  });
});

const publishTo = ({ destinations, ...server }: ConsoleServer, label: string): Promise<unknown> =>
  call(server, `POST /v2/publish/${destinations.url}/ok/tail`, { headers: { "svc-label": label } });

/** Reports whether the focus is on an element, or inside one, that a selector names. */
const isFocusIn = (page: Page, selector: string): Promise<boolean> =>
  page.evaluate<boolean>(`document.activeElement?.closest(${JSON.stringify(selector)}) !== null`);

async function openLogin(page: Page, { url }: ConsoleServer): Promise<void> {
  await page.goto(`${url}/console/`);
  await expectShown(page.getByRole("button", { name: "Sign in" }));
}
