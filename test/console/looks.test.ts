import type { Locator } from "playwright-core";
import { expect, test } from "vitest";
import { operatorPassword } from "./consoleServer.ts";
import { expectShown } from "./measures.ts";
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
    await page.locator("tbody tr").first().click();
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
    expect((box?.y ?? 0) + (box?.height ?? 0)).toBeLessThanOrEqual(500);
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

  test("a queue that the server calls blocked is not shown as active", async () => {
    const { page, server } = open;
    await page.route("**/v2/overview", async (route) => {
      const overview = (await (await route.fetch()).json()) as { conditions: object[] };
      const blocked = { kind: "queue.blocked", level: "problem", subject: "parcels", text: "blocked" };
      await route.fulfill({ json: { ...overview, conditions: [blocked, ...overview.conditions] } });
    });
    await openPage(page, server, "/queues");
    const row = page.getByRole("row").filter({ hasText: "parcels" });
    await expectShown(row.getByText("Blocked"));
    await page.unrouteAll({ behavior: "ignoreErrors" });
  });

  test("the chart of the overview leaves out the minute that has just begun", async () => {
    const { page, server } = open;
    await page.route("**/v2/overview", async (route) => {
      const overview = (await (await route.fetch()).json()) as { minutes: object[] };
      const minutes = overview.minutes.map((minute, at) => ({
        ...minute,
        delivered: at === 9 ? 7 : 0,
        failed: 0,
      }));
      await route.fulfill({ json: { ...overview, minutes, worstHosts: [] } });
    });
    await openPage(page, server, "/");
    expect(await page.locator(".chart tbody tr").count()).toBe(14);
    // The line begins at the tenth of 14 minutes, and not at the edge.
    expect(await page.locator(".ch-line").getAttribute("d")).toMatch(/^M664\.6 /);
    await expectShown(page.getByText("No host fails"));
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
