import type { Locator } from "playwright-core";
import { expect, test } from "vitest";
import { operatorPassword } from "./consoleServer.ts";
import { expectShown, findViolations } from "./measures.ts";
import { describeConsole } from "./openConsole.ts";
import { listDialogs, openPage } from "./pages.ts";
import { call } from "./seed.ts";

/** Returns the computed value of a property of an element. */
const readStyle = (locator: Locator, name: string): Promise<string> =>
  locator.evaluate((element, property) => {
    const style = Reflect.get(globalThis, "getComputedStyle") as (of: unknown) => {
      getPropertyValue(name: string): string;
    };
    return style(element).getPropertyValue(property);
  }, name);

describeConsole("how pages look", (open) => {
  test("a dialog that opens from a table is aligned at the left, and its buttons stay in view", async () => {
    const { page, server } = open;
    await openPage(page, server, "/sources");
    await page.getByRole("button", { name: "Edit" }).click();
    const dialog = page.getByRole("dialog");
    expect(await readStyle(dialog, "text-align")).toBe("start");
    expect(await readStyle(dialog, "white-space")).toBe("normal");
    expect(await readStyle(dialog.locator("footer"), "position")).toBe("sticky");
    await page.keyboard.press("Escape");
    expect(await readStyle(page.getByRole("columnheader").first(), "text-align")).toBe("left");
  });

  test("the search is in the middle, and names the key of this machine", async () => {
    const { page, server } = open;
    await listDialogs()["search"]?.(page, server);
    const box = await page.getByRole("dialog", { name: "Search" }).boundingBox();
    expect(box?.y).toBeGreaterThan(50);
    expect(Math.abs((box?.x ?? 0) + (box?.width ?? 0) / 2 - 640)).toBeLessThan(10);
    const isMac = await page.evaluate<boolean>("/Mac/.test(navigator.platform)");
    await expectShown(page.getByRole("dialog").getByText(isMac ? "⌘" : "Ctrl", { exact: true }));
    await page.keyboard.press("Escape");
  });

  test("the sidebar is shown at 1024 px, also beside an open drawer, and is a menu on a phone", async () => {
    const { page, server } = open;
    await page.setViewportSize({ width: 1024, height: 768 });
    await openPage(page, server, "/messages?state=held");
    await expectShown(page.locator("nav.side"));
    await page.locator("tbody .c-state").first().click();
    await expectShown(page.locator(".drawer .gates"));
    await expectShown(page.locator("nav.side"));
    expect((await page.locator("main").boundingBox())?.width).toBeGreaterThan(700);
    await page.setViewportSize({ width: 390, height: 768 });
    await page.locator("nav.side").waitFor({ state: "hidden" });
    await page.setViewportSize({ width: 1280, height: 900 });
  });

  test("the form of a bulk action is above the list, wherever its button was", async () => {
    const { page, server } = open;
    for (const [path, list] of [
      ["/dead-letters", ".group"],
      ["/failed-runs", "table"],
      ["/runs", "table"],
      ["/messages", "table"],
    ] as const) {
      await openPage(page, server, path);
      await page.getByRole("button", { name: "Act on all" }).click();
      const panel = await page.locator(".bulk").boundingBox();
      const below = await page.locator(list).first().boundingBox();
      expect(panel?.y, path).toBeLessThan(below?.y ?? 0);
    }
  });

  test("the page of a failed run leads to the failed step", async () => {
    const { page, server } = open;
    await page.setViewportSize({ width: 1280, height: 500 });
    await openPage(page, server, "/runs/order-48213");
    await page.getByRole("button", { name: "Show step" }).click();
    const box = await page.locator(".tl-detail").boundingBox();
    expect(box?.y).toBeGreaterThan(0);
    expect(box?.y).toBeLessThan(300);
    await page.setViewportSize({ width: 1280, height: 900 });
  });

  test("the operator begins at the accounts, and a switch leads to the overview of the account", async () => {
    const page = await (await open.newContext()).newPage();
    await page.goto(`${open.server.url}/console/`);
    await page.getByRole("button", { name: "Operator" }).click();
    await page.getByLabel("Password").fill(operatorPassword);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.waitForURL(/\/operator$/);
    const row = page.getByRole("row").filter({ hasText: "testUser2" });
    await row.getByRole("button", { name: "Switch" }).click();
    await expectShown(page.getByRole("heading", { name: "Overview" }));
    await page.context().close();
  });

  test("j and k open the next message while one is open", async () => {
    const { page, server } = open;
    await openPage(page, server, "/messages?state=held");
    const ids = await page
      .locator("tbody .id")
      .evaluateAll((all) => all.map((one) => one.getAttribute("title") ?? ""));
    await page.locator("tbody tr").first().click();
    for (const [key, id] of [
      ["j", ids[1]],
      ["k", ids[0]],
    ] as const) {
      await page.keyboard.press(key);
      await expectShown(page.getByRole("complementary", { name: `Message ${id}` }));
    }
  });

  test("a press on the row of a group or of a problem opens it", async () => {
    const { page, server } = open;
    await openPage(page, server, "/dead-letters");
    await page.locator(".group-row .count").first().click();
    await expectShown(page.locator(".group table"));
    await openPage(page, server, "/");
    await page
      .locator(".needs li")
      .filter({ hasText: "Queue returns is paused" })
      .click({ position: { x: 400, y: 8 } });
    await page.waitForURL(/\/queues\/returns$/);
  });

  test("a failed message leads to its dead letter, which has the settings of the message", async () => {
    const { page, server } = open;
    await openPage(page, server, "/messages?view=FAILED&label=parcel-977");
    await page.locator("tbody tr").first().click();
    await expectShown(page.locator(".drawer").getByRole("button", { name: "Retry" }));
    await page.locator(".drawer").getByRole("link", { name: "Dead letter" }).click();
    const drawer = page.getByRole("complementary", { name: /^Dead letter/ });
    await expectShown(drawer.getByText("parcel-977"));
    await expectShown(drawer.getByText(/^failed .* ago$/));
  });

  test("on a phone, a key shows its rate, and a source its rejected calls", async () => {
    const { page, server } = open;
    await page.setViewportSize({ width: 390, height: 768 });
    await openPage(page, server, "/keys");
    await expectShown(page.locator("td[data-head=Rate]"));
    await openPage(page, server, "/sources");
    await expectShown(page.locator("td[data-head=Rejected]"));
    await openPage(page, server, "/settings");
    expect((await page.locator(".settings > .nav").boundingBox())?.height).toBeLessThan(60);
    await page.setViewportSize({ width: 1280, height: 900 });
  });

  /** Lets the overview report further conditions. */
  const report = async (...more: object[]): Promise<void> => {
    await open.page.route("**/v2/overview", async (route) => {
      const overview = (await (await route.fetch()).json()) as { conditions: object[] };
      await route.fulfill({ json: { ...overview, conditions: [...more, ...overview.conditions] } });
    });
  };

  test("each row of a list says why, since when and who did it, and has the button that helps", async () => {
    const { page, server } = open;
    const row = (text: string): Locator => page.getByRole("row").filter({ hasText: text });
    await report(
      {
        ...{ kind: "queue.blocked", level: "warning", subject: "parcels", since: Date.now() - 60_000 },
        text: "Queue parcels: 4 messages wait, the oldest for 1 min",
      },
      { kind: "queue.drowning", level: "warning", subject: "empty", text: "Queue empty gets more" },
      { kind: "schedule.failing", level: "problem", subject: "morning-report", text: "The last one failed" },
    );
    await openPage(page, server, "/queues");
    await expectShown(row("returns").getByText("Is paused: 3 messages wait"));
    await expectShown(row("returns").getByText(/^since .* ago, by the main token$/));
    await expectShown(row("returns").getByRole("button", { name: "Resume: Queue returns" }));
    await expectShown(row("parcels").getByText("Blocked"));
    await expectShown(row("parcels").getByText("4 messages wait, the oldest for 1 min"));
    await row("empty").getByRole("button", { name: "Set parallelism: empty" }).click();
    await expectShown(page.getByRole("dialog", { name: "Parallelism of empty" }));
    await page.keyboard.press("Escape");
    await row("parcels").getByRole("link", { name: "Show slots" }).click();
    await page.waitForURL(/\/queues\/parcels$/);
    await openPage(page, server, "/schedules");
    await expectShown(row("morning-report").getByText("Failing"));
    await row("morning-report").getByRole("button", { name: "Run now: morning-report" }).click();
    await expectShown(page.getByText("Schedule morning-report has published its message"));
    await page.unrouteAll({ behavior: "ignoreErrors" });
  });

  test("a key with pinned limits shows that, and Unpin ends it", async () => {
    const { page, server } = open;
    await call(server, "POST /v2/flowControl/crm/pin?parallelism=2");
    await openPage(page, server, "/keys");
    const row = page.getByRole("row").filter({ hasText: "crm" });
    await expectShown(row.getByText(/; parallelism pinned$/));
    // While the key is paused, its one button is Resume.
    expect(await row.getByRole("button", { name: "Unpin: crm" }).count()).toBe(0);
    await row.getByRole("button", { name: "Resume: Key crm" }).click();
    await row.getByRole("button", { name: "Unpin: crm" }).click();
    await row.getByText(/pinned/).waitFor({ state: "detached" });
    const [key] = (await call(server, "GET /v2/flowControl?search=crm")) as object[];
    expect(key).toMatchObject({ isPinnedParallelism: false });
    await call(server, "POST /v2/flowControl/crm/pause");
  });

  test("a press on the head of a column sorts a whole list, and the order is in the address", async () => {
    const { page, server } = open;
    const names = (): Promise<string[]> => page.locator("tbody td.c-what").allInnerTexts();
    await openPage(page, server, "/queues");
    const first = await names();
    expect(first).toEqual(["parcels", "returns", "empty"]);
    const head = page.getByRole("columnheader", { name: "Queue" });
    await head.getByRole("button").click();
    await page.waitForURL(/by=Queue$/);
    expect(await names()).toEqual(["empty", "parcels", "returns"]);
    expect(await head.getAttribute("aria-sort")).toBe("ascending");
    await head.getByRole("button").click();
    await page.waitForURL(/by=-Queue$/);
    expect(await names()).toEqual(["returns", "parcels", "empty"]);
    await head.getByRole("button").click();
    await page.waitForURL(/\/queues$/);
    expect(await names()).toEqual(first);
    await openPage(page, server, "/queues?by=-Parallelism");
    expect(await names()).toEqual(["returns", "empty", "parcels"]);
  });

  test("tabs count all messages, runs and dead letters, whatever the filters of the page are", async () => {
    const { page, server } = open;
    const overview = (await call(server, "GET /v2/overview")) as {
      unfinished: { count: number };
      states: Record<string, { count: number }>;
      runs: Record<string, { count: number }>;
    };
    await openPage(page, server, "/messages?label=nothing");
    const tab = (name: string): Locator => page.getByRole("navigation", { name: "State" }).getByText(name);
    await expectShown(tab(`Unfinished${overview.unfinished.count}`));
    const states = page.getByRole("group", { name: "Only one state" });
    await expectShown(states.getByText(`Paused ${overview.states["paused"]?.count}`));
    await expectShown(states.getByText(`Retrying ${overview.states["retrying"]?.count}`));
    await openPage(page, server, "/runs");
    await expectShown(tab(`Failed${overview.runs["failed"]?.count}`));
    await openPage(page, server, "/dead-letters?view=list");
    const rows = await page.locator("tbody tr").count();
    await expectShown(page.getByRole("button", { name: `List ${rows}`, exact: true }));
  });

  test("x chooses rows, the list then stands still, and the bulk action is on the chosen rows", async () => {
    const { page, server } = open;
    for (let at = 0; at < 3; at++)
      await call(server, `POST /v2/publish/${server.destinations.url}/ok/later`, {
        headers: { "svc-delay": "1d", "svc-label": "chosen" },
      });
    await openPage(page, server, "/messages?label=chosen");
    expect(await page.locator("tbody tr").count()).toBe(3);
    for (const key of ["j", "x", "j", "j", "x", "x", "x"]) await page.keyboard.press(key);
    await expectShown(page.getByText("Paused: rows are chosen"));
    expect(await page.getByRole("checkbox", { checked: true }).count()).toBe(2);
    await page.getByRole("button", { name: "Act on 2 chosen" }).click();
    await page.getByRole("button", { name: "Cancel 2", exact: true }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Cancel 2", exact: true }).click();
    await expectShown(page.locator(".bulk").getByText("Done", { exact: true }));
    const left = (await call(server, "GET /v2/messages?label=chosen")) as { messages: unknown[] };
    expect(left.messages).toHaveLength(1);
    await page.locator(".bulk").getByRole("button", { name: "Close" }).click();
    await expectShown(page.getByRole("button", { name: "Act on all" }));
  });

  test("a filter is saved under a name, opened, and deleted", async () => {
    const { page, server } = open;
    await openPage(page, server, "/messages?state=held&label=order-48214&order=latestFirst");
    await page.getByRole("button", { name: "Saved" }).click();
    await page.getByLabel("Name of the present filter").fill("stuck parcels");
    await page.getByRole("button", { name: "Save", exact: true }).click();
    await openPage(page, server, "/runs");
    await page.getByRole("button", { name: "Saved" }).click();
    await expectShown(page.getByText("No saved filters of this page."));
    await openPage(page, server, "/messages");
    expect(await page.getByLabel("Order").inputValue()).toBe("0");
    await page.getByRole("button", { name: "Saved" }).click();
    await page.getByRole("button", { name: "stuck parcels", exact: true }).click();
    await page.waitForURL(/state=held&label=order-48214&order=latestFirst$/);
    expect(await page.getByLabel("Order").inputValue()).toBe("1");
    await page.getByRole("button", { name: "Saved" }).click();
    expect(await findViolations(page)).toEqual([]);
    await page.getByRole("button", { name: "Delete the filter stuck parcels" }).click();
    await page.getByText("stuck parcels").waitFor({ state: "detached" });
    await page.keyboard.press("Escape");
  });

  test("the server sorts a list that has pages", async () => {
    const { page, server } = open;
    const ids = (): Promise<(string | null)[]> =>
      page.locator("tbody .id").evaluateAll((all) => all.map((one) => one.getAttribute("title")));
    await openPage(page, server, "/dead-letters?view=list");
    const first = await ids();
    await page.getByLabel("Order").selectOption("Newest first");
    await page.waitForURL(/order=latestFirst$/);
    await expectShown(page.locator(`tbody tr:first-child .id[title="${first.at(-1)}"]`));
    expect(await ids()).toEqual(first.toReversed());
  });

  test("the chart of the overview leaves out the minute that has just begun", async () => {
    const { page, server } = open;
    await page.route("**/v2/activity?*", async (route) => {
      const activity = (await (await route.fetch()).json()) as { points: object[] };
      const points = activity.points.map((point, at) => ({
        ...point,
        delivered: at === 39 ? 7 : 0,
        failed: 0,
        retried: 0,
        p95: at === 39 ? 40 : undefined,
      }));
      await route.fulfill({ json: { ...activity, points, marks: [] } });
    });
    await page.route("**/v2/overview", async (route) => {
      const overview = (await (await route.fetch()).json()) as object;
      await route.fulfill({ json: { ...overview, minutes: [], worstHosts: [] } });
    });
    await openPage(page, server, "/");
    const chart = page.locator(".chart").first();
    expect(await chart.locator("tbody tr").count()).toBe(59);
    // The line begins at the 40th of 59 minutes, and not at the edge.
    expect(await chart.locator(".ch-line").getAttribute("d")).toMatch(/^M645\.5 /);
    const durations = page.getByRole("table", { name: "Duration of attempts over time" });
    expect(await durations.getByRole("cell", { name: "40" }).count()).toBe(1);
    await expectShown(page.getByText("No recent deliveries"));
    await page.unrouteAll({ behavior: "ignoreErrors" });
  });

  test("limits are shown with their units, and no plan that the account does not have", async () => {
    const { page, server } = open;
    await openPage(page, server, "/settings?part=limits");
    await expectShown(page.getByRole("heading", { name: "Limits" }));
    expect(await page.getByText(/^plan /).count()).toBe(0);
    expect(await page.locator(".limits").innerText()).not.toMatch(/\d{7}/);
  });

  test("a long URL keeps its end", async () => {
    const { page, server } = open;
    const path = `/ok/${"long-".repeat(60)}end-of-the-url`;
    await call(server, `POST /v2/publish/${server.destinations.url}${path}`, {
      headers: { "svc-delay": "1d", "svc-label": "long-url" },
    });
    await openPage(page, server, "/messages?label=long-url");
    const cell = await page.locator("td.c-what").boundingBox();
    const end = await page.locator("td.c-what .url > :last-child").boundingBox();
    expect((end?.x ?? 0) + (end?.width ?? 0)).toBeLessThanOrEqual((cell?.x ?? 0) + (cell?.width ?? 0));
    expect(end?.width).toBeGreaterThan(60);
  });
});
