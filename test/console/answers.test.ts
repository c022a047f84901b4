import { expect, test } from "vitest";
import { expectShown, findViolations } from "./measures.ts";
import { describeConsole } from "./openConsole.ts";
import { openPage } from "./pages.ts";
import { call, until } from "./seed.ts";

const json = (body: unknown) => ({ body: JSON.stringify(body) });

describeConsole("what rows and tabs answer", (open) => {
  test("a run that was resumed leads to its successor, in the list and on its page", async () => {
    const { page, server } = open;
    server.destinations.failsReceipt = false;
    const { messages } = (await call(server, "GET /v2/workflows/dlq")) as {
      messages: { dlqId: string; workflowRunId: string }[];
    };
    const failed = messages.find(({ workflowRunId }) => workflowRunId === "order-48213");
    const resumed = (await call(server, `POST /v2/workflows/dlq/resume/${failed?.dlqId}`)) as {
      workflowRunId: string;
    };
    await openPage(page, server, "/runs");
    const row = page.getByRole("row").filter({ hasText: "order-48213" });
    await expectShown(row.getByText("Resumed as"));
    expect(await row.getByRole("button", { name: "Resume" }).count()).toBe(0);
    await row.getByRole("link", { name: resumed.workflowRunId }).click();
    await expectShown(page.getByRole("heading", { name: resumed.workflowRunId }));
    await openPage(page, server, "/runs/order-48213");
    const callout = page.locator(".callout");
    await expectShown(callout.getByText("Resumed as"));
    await expectShown(callout.getByRole("link", { name: resumed.workflowRunId }));
    expect(await callout.getByText("Resume sends this step again").count()).toBe(0);
  });

  test("the audit log shows tokens by their names, also those that were revoked", async () => {
    const { page, server } = open;
    const made = (await call(
      server,
      "POST /v2/tokens",
      json({ name: "deployments", verbs: ["manage"] }),
    )) as { tokenId: string; token: string };
    await call({ url: server.url, token: made.token }, "POST /v2/queues/empty/pause");
    await call(server, `DELETE /v2/tokens/${made.tokenId}`);
    await openPage(page, server, "/settings?part=audit");
    const paused = page.getByRole("row").filter({ hasText: "queue.pause" }).first();
    await expectShown(paused.getByText("deployments", { exact: true }));
    const revoked = page.getByRole("row").filter({ hasText: "token.revoke" });
    await expectShown(revoked.getByText("deployments", { exact: true }));
    await expectShown(revoked.getByText("main token"));
    expect(await findViolations(page)).toEqual([]);
    await openPage(page, server, "/");
    await expectShown(page.getByText(/by token “deployments”/));
  });

  test("tabs count what has ended", async () => {
    const { page, server } = open;
    const { ended, runs } = (await call(server, "GET /v2/overview")) as Record<
      "ended" | "runs",
      Record<string, { count: number }>
    >;
    await openPage(page, server, "/messages");
    const tab = (name: string) =>
      page.locator("nav.tabs").getByRole("link", { name: new RegExp(`^${name}`) });
    expect(await tab("Cancelled").innerText()).toMatch(/Cancelled\s*1$/);
    expect(await tab("Failed").innerText()).toMatch(new RegExp(`${ended["failed"]?.count}$`));
    await openPage(page, server, "/runs");
    expect(await tab("Success").innerText()).toMatch(new RegExp(`${runs["succeeded"]?.count}$`));
    expect(await tab("Cancelled").innerText()).toMatch(/Cancelled\s*1$/);
  });

  test("held messages are counted by gate, and each gate leads to its page", async () => {
    const { page, server } = open;
    await openPage(page, server, "/");
    const held = page.getByRole("region", { name: "Held messages, by gate" });
    await expectShown(held.getByRole("link", { name: "Queue parcels", exact: true }));
    await expectShown(held.getByText(/at capacity/).first());
    await held.getByRole("link", { name: "Key crm", exact: true }).click();
    await expectShown(page.getByRole("dialog").getByText("crm").first());
    expect(page.url()).toContain("open=crm");
  });

  test("groups say where they differ, and the chip of a cause shows its error", async () => {
    const { page, server } = open;
    const { url } = server.destinations;
    for (const path of ["one", "two"])
      await call(server, `POST /v2/publish/${url}/unknown-sku/${path}`, { headers: { "svc-retries": "0" } });
    const countGroups = async (): Promise<number> => {
      const { groups } = (await call(server, "GET /v2/dlq/groups")) as { groups: { url: string }[] };
      return groups.filter((one) => one.url.includes("unknown-sku/")).length;
    };
    await until("the dead letters", async () => (await countGroups()) === 3);
    await openPage(page, server, "/");
    const more = page.getByRole("button", { name: /^Show \d+ more$/ });
    if (await more.isVisible()) await more.click();
    await page.getByRole("link", { name: "“unknown sku” at /unknown-sku/two" }).click();
    const chip = page.locator(".filter").filter({ hasText: "Cause" });
    await expectShown(chip.getByText(`“unknown sku” at ${url.replace("http://", "")}/unknown-sku/two`));
    expect(await page.locator("article.group").count()).toBe(1);
    await chip.getByRole("button", { name: "Remove the filter Cause" }).click();
    await expectShown(page.locator("article.group").getByText("“unknown sku” at /unknown-sku/one"));
    expect(await findViolations(page)).toEqual([]);
  });

  test("a long reason and a long name are shown as a whole at each width", async () => {
    const { page, server } = open;
    const made = (await call(
      server,
      "POST /v2/sources",
      json({
        name: "shop of the third region",
        destination: `${server.destinations.url}/ok/hook`,
        verification: { scheme: "github", secret: "a-wrong-secret-of-it" },
      }),
    )) as { url: string };
    const headers = { "x-hub-signature-256": "sha256=00" };
    for (let at = 0; at < 3; at++) await fetch(made.url, { method: "POST", headers, body: "{}" });
    const id = "order-of-a-customer-with-a-long-name-2026-11-30-000048222";
    await call(server, `POST /v2/trigger/${server.destinations.url}/workflows/order`, {
      headers: { "svc-workflow-runid": id },
      ...json({ id, waits: true }),
    });
    await until("the event", async () => {
      const { events } = (await call(server, "GET /v2/waiters")) as { events: { eventId: string }[] };
      return events.some(({ eventId }) => eventId === `shipped-${id}`);
    });
    for (const width of [390, 1024, 1440]) {
      await page.setViewportSize({ width, height: 900 });
      for (const [path, text] of [
        ["/sources", /^Rejected 3 calls within an hour/],
        ["/events", `shipped-${id}`],
        ["/runs", id],
      ] as const) {
        await openPage(page, server, path);
        const shown = page.locator("main").getByText(text).first();
        await expectShown(shown);
        const hidden = await shown.evaluate((one) => [
          one.scrollHeight - one.clientHeight,
          one.scrollWidth - one.clientWidth,
        ]);
        expect(Math.max(...hidden), `${path} at ${width} px`).toBeLessThanOrEqual(1);
        const box = await shown.boundingBox();
        expect(box?.width, `${path} at ${width} px`).toBeGreaterThan(90);
      }
    }
    await page.setViewportSize({ width: 1280, height: 900 });
  });
});
