import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import type { ConsoleServer } from "./consoleServer.ts";
import { expectShown, findViolations } from "./measures.ts";
import { describeConsole } from "./openConsole.ts";
import { openPage } from "./pages.ts";
import { call, until } from "./seed.ts";

/** A field of the form, what is typed, and where the API shows it: in the message or in its log. */
type Row = { field: string; value: string; message?: object; log?: object };

/** The settings of a message, except those that no response shows. */
const rows: readonly Row[] = [
  { field: "Delay", value: "2h" },
  { field: "Retries", value: "5", message: { maxRetries: 5 } },
  { field: "Timeout", value: "42s", log: { timeout: 42_000 } },
  { field: "Retry delay, in ms", value: "7000", message: { retryDelayExpression: "7000" } },
  { field: "Flow control key", value: "form", message: { flowControlKey: "form" } },
  {
    field: "Limits of the flow-control key",
    value: "parallelism=2, rate=9, period=1m",
    message: { parallelism: 2, rate: 9, period: 60 },
  },
  { field: "Labels", value: "from-form, eu", message: { labels: ["from-form", "eu"] } },
  { field: "Redact", value: "header[X-Secret]", message: { header: { "X-Secret": [redacted()] } } },
  { field: "Headers", value: "X-Secret: s\nX-One: 1", message: { header: { "X-One": ["1"] } } },
  { field: "Content type", value: "text/plain", message: { header: { "Content-Type": ["text/plain"] } } },
  { field: "Body", value: "text of the form", message: { body: "text of the form" } },
];

/** The settings of a callback, and the headers by which the log shows them. */
const callbackRows: readonly (readonly [field: string, value: string, header: string])[] = [
  ["Delay", "3m", "Delay"],
  ["Retries", "1", "Retries"],
  ["Timeout", "9s", "Timeout"],
];

function redacted(): unknown {
  return expect.not.stringMatching(/^s$/);
}

describeConsole(
  "the form for publishing",
  (open) => {
    const form = (page: Page) => page.locator("form.form");

    test("each setting arrives in the stored message", async () => {
      const { page, server } = open;
      await openPage(page, server, "/publish");
      await form(page)
        .getByRole("textbox", { name: "Destination" })
        .fill(`${server.destinations.url}/ok/form`);
      await form(page).getByRole("combobox", { name: "Method" }).selectOption("PATCH");
      for (const { field, value } of rows) await form(page).getByLabel(field, { exact: true }).fill(value);
      await form(page).getByLabel("Deduplication id", { exact: true }).fill("once");
      await form(page).getByLabel("Deduplication window", { exact: true }).fill("1h");
      for (const name of ["Callback", "Failure callback"]) {
        const group = form(page).getByRole("group", { name, exact: true });
        await group.getByLabel(name, { exact: true }).fill(`${server.destinations.url}/ok/told`);
        await group.getByText(/^Settings of the/).click();
        for (const [field, value] of callbackRows) await group.getByLabel(field, { exact: true }).fill(value);
        await group.getByLabel("Headers").fill("X-Told: yes");
      }
      expect(await findViolations(page)).toEqual([]);
      const delay = form(page).getByLabel("Delay", { exact: true }).first();
      const described = await delay.getAttribute("aria-describedby");
      expect(await page.locator(`[id="${described}"]`).innerText()).toBe("Time before the first attempt.");

      await form(page).getByRole("button", { name: "Publish" }).click();
      const link = page.getByRole("status").getByRole("link", { name: /^msg_/ });
      const id = await link.innerText();
      const message = (await call(server, `GET /v2/messages/${id}`)) as {
        notBefore: number;
        createdAt: number;
      };
      expect(message).toMatchObject({ method: "PATCH", url: `${server.destinations.url}/ok/form` });
      expect(message.notBefore - message.createdAt).toBe(7_200_000);
      for (const row of rows) if (row.message) expect(message, row.field).toMatchObject(row.message);
      const { events } = (await call(server, `GET /v2/logs?messageId=${id}`)) as { events: object[] };
      for (const row of rows) if (row.log) expect(events[0], row.field).toMatchObject(row.log);
      const told = { "X-Told": ["yes"] };
      expect(events[0]).toMatchObject({ callbackHeaders: told, failureCallbackHeaders: told });

      await form(page).getByRole("button", { name: "Publish" }).click();
      await expectShown(page.getByText("already existed, so nothing was stored"));
    });

    test("a time, a queue and a kept response arrive", async () => {
      const { page, server } = open;
      await openPage(page, server, "/publish");
      await form(page)
        .getByRole("textbox", { name: "Destination" })
        .fill(`${server.destinations.url}/ok/kept`);
      await form(page).getByLabel("Queue", { exact: true }).selectOption("empty");
      await form(page).getByLabel("Keep the response").check();
      await form(page).getByLabel("Not before", { exact: true }).fill("2001-02-03T04:05");
      await form(page).getByRole("button", { name: "Publish" }).click();
      const id = await page.getByRole("status").getByRole("link", { name: /^msg_/ }).innerText();
      let events: { state: string; queueName?: string; responseBody?: string }[] = [];
      await until("the delivery", async () => {
        ({ events } = (await call(server, `GET /v2/logs?messageId=${id}`)) as { events: typeof events });
        return events.some(({ state }) => state === "DELIVERED");
      });
      expect(events[0]).toMatchObject({ queueName: "empty" });
      const { responseBody = "" } = events.find(({ state }) => state === "DELIVERED") ?? {};
      expect(Buffer.from(responseBody, "base64").toString()).toContain("taken");
    });

    test("a batch publishes all its messages, and a run starts with its id", async () => {
      const { page, server } = open;
      await openPage(page, server, "/publish");
      await form(page)
        .getByRole("textbox", { name: "Destination" })
        .fill(`${server.destinations.url}/ok/first`);
      await form(page).getByRole("button", { name: "Add to batch" }).click();
      await form(page).getByRole("textbox", { name: "Destination" }).fill("warehouses");
      await expectShown(page.getByText("/v2/batch").first());
      await form(page).getByRole("button", { name: "Publish: 2" }).click();
      await expectShown(page.getByRole("status").getByRole("link").nth(2));

      await form(page).getByRole("button", { name: "Run of a workflow" }).click();
      await form(page)
        .getByRole("textbox", { name: "Destination" })
        .fill(`${server.destinations.url}/workflows/invoice`);
      await form(page).getByLabel("Run id", { exact: true }).fill("from-the-form");
      await form(page).getByLabel("Body", { exact: true }).fill('{"id": "1"}');
      await form(page).getByRole("button", { name: "Start run" }).click();
      await page.getByRole("status").getByRole("link", { name: "from-the-form" }).click();
      await expectShown(page.locator(".tl-row").first());
    });

    test("a schedule is created, edited with its settings kept, and deleted", async () => {
      const { page, server } = open;
      await openPage(page, server, "/schedules");
      await page.getByRole("link", { name: "New schedule" }).click();
      await form(page)
        .getByRole("textbox", { name: "Destination" })
        .fill(`${server.destinations.url}/ok/often`);
      await form(page).getByLabel("Cron expression").fill("0 4 * * *");
      await form(page).getByLabel("Schedule id").fill("from-form");
      await form(page).getByLabel("Labels").fill("kept");
      await form(page).getByLabel("Headers", { exact: true }).fill("X-Kept: 1");
      await form(page).getByRole("button", { name: "Save schedule" }).click();
      await page.getByRole("status").getByRole("link", { name: "from-form" }).click();
      await page.getByRole("dialog").getByRole("link", { name: "Edit" }).click();
      await form(page).getByLabel("Cron expression").fill("0 5 * * *");
      await form(page).getByRole("button", { name: "Save schedule" }).click();
      await expectShown(page.getByRole("status").getByText("The schedule is saved"));
      expect(await call(server, "GET /v2/schedules/from-form")).toMatchObject({
        cron: "0 5 * * *",
        label: "kept",
        header: { "X-Kept": ["1"] },
      });
      await openPage(page, server, "/schedules");
      await page.getByRole("button", { name: "Delete schedule from-form" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Delete schedule" }).click();
      await page.getByRole("row").filter({ hasText: "from-form" }).waitFor({ state: "detached" });
    });
    test("an edit of the expression keeps every setting, what is hidden, and the pause", async () => {
      const { page, server } = open;
      await createScheduleWithEverything(server, "everything");
      await call(server, "POST /v2/schedules/everything/pause");
      const read = async () => (await call(server, "GET /v2/schedules/everything")) as ShownSchedule;
      const before = await read();
      expect(before.settings).toMatchObject({ "Svc-Forward-X-Secret": redacted() });
      await openPage(page, server, "/publish?schedule=everything");
      const shown = { Timeout: "42s", Redact: "body, header[X-Secret]", Labels: "eu, billing" };
      for (const [name, text] of Object.entries(shown))
        expect(await form(page).getByLabel(name, { exact: true }).first().inputValue(), name).toBe(text);
      expect(await form(page).getByLabel("Queue", { exact: true }).inputValue()).toBe("not-yet-made");
      expect(await findViolations(page)).toEqual([]);
      await form(page).getByLabel("Cron expression").fill("0 5 * * *");
      await form(page).getByRole("button", { name: "Save schedule" }).click();
      await expectShown(page.getByRole("status").getByText("The schedule is saved"));
      expect(await read()).toEqual({
        ...before,
        cron: "0 5 * * *",
        settings: { ...before.settings, "Svc-Cron": "0 5 * * *" },
      });

      const failure = form(page).getByRole("group", { name: "Failure callback", exact: true });
      await failure.getByText(/^Settings of the/).click();
      await failure.getByLabel("Timeout", { exact: true }).fill("12s");
      await form(page).getByLabel("Delay", { exact: true }).first().fill("");
      await form(page).getByRole("button", { name: "Save schedule" }).click();
      await expectShown(page.getByRole("status").getByText("The schedule is saved"));
      const { "Svc-Delay": delay, ...others } = before.settings;
      expect(delay).toBe("2h");
      expect((await read()).settings).toEqual({
        ...others,
        "Svc-Cron": "0 5 * * *",
        "Svc-Failure-Callback-Timeout": "12s",
      });
    });
  },
  { tags: ["long"] },
);

type ShownSchedule = { settings: Record<string, string> };

/** Creates a schedule with every setting that a schedule keeps, and with a callback of a callback. */
async function createScheduleWithEverything(server: ConsoleServer, id: string): Promise<void> {
  const told = `${server.destinations.url}/ok/told`;
  await call(server, `POST /v2/schedules/${server.destinations.url}/ok/everything`, {
    headers: {
      "Content-Type": "text/plain",
      "Svc-Schedule-Id": id,
      "Svc-Cron": "0 4 * * *",
      "Svc-Queue-Name": "not-yet-made",
      "Svc-Method": "PUT",
      "Svc-Delay": "2h",
      "Svc-Retries": "7",
      "Svc-Retry-Delay": "1000 * retried",
      "Svc-Timeout": "42s",
      "Svc-Label": "eu, billing",
      "Svc-Flow-Control-Key": "k",
      "Svc-Flow-Control-Value": "parallelism=2, rate=9, period=1m",
      "Svc-Redact-Fields": "body, header[X-Secret]",
      "Svc-Keep-Response": "true",
      "Svc-Forward-X-Secret": "s",
      "Svc-Forward-X-One": "1",
      "Svc-Callback": told,
      "Svc-Callback-Timeout": "9s",
      "Svc-Callback-Forward-X-Secret": "t",
      "Svc-Failure-Callback": told,
      "Svc-Failure-Callback-Timeout": "11s",
      "Svc-Failure-Callback-Callback": told,
      "Svc-Failure-Callback-Callback-Retries": "1",
    },
    body: "secret",
  });
}
