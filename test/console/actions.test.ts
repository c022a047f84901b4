import { createHmac } from "node:crypto";
import { expect, test } from "vitest";
import { expectShown, findViolations } from "./measures.ts";
import { describeConsole } from "./openConsole.ts";
import { openPage } from "./pages.ts";
import { call, until } from "./seed.ts";

describeConsole("actions in the console", (open) => {
  test("filters are in the address, and a bulk action is a dry run first", async () => {
    await openPage(open.page, open.server, "/messages");
    await open.page.getByRole("searchbox", { name: "Filter" }).fill("reminder");
    await open.page.keyboard.press("Enter");
    await open.page
      .getByRole("option", { name: "With exactly this label reminder", selected: true })
      .waitFor();
    await open.page.keyboard.press("Enter");
    await open.page.waitForURL(/label=reminder/);
    await open.page.getByRole("button", { name: /Act on all/ }).click();
    await expectShown(open.page.getByRole("heading", { name: "Cancel 1 message" }));
    await open.page.getByRole("button", { name: "Cancel 1", exact: true }).click();
    const dialog = open.page.getByRole("dialog", { name: "Cancel 1 message" });
    await dialog.getByRole("button", { name: "Cancel 1", exact: true }).click();
    await expectShown(open.page.getByText("No unfinished message matches these filters"));
  });

  test("a dead letter is changed, with the differences shown, and sent again", async () => {
    await openPage(open.page, open.server, "/dead-letters?view=list&label=hostile");
    await open.page.locator("tbody tr").first().click();
    await open.page.getByRole("button", { name: "Change and retry" }).click();
    const dialog = open.page.getByRole("dialog", { name: "Change and retry" });
    await dialog.getByRole("textbox", { name: "URL" }).fill(`${open.server.destinations.url}/ok/replayed`);
    const body = dialog.getByRole("textbox", { name: "Body" });
    await body.fill((await body.inputValue()).replace("48213", "48214"));
    const changes = dialog.getByLabel("Changes of Body");
    await expectShown(changes.locator(".removed", { hasText: "48213" }));
    expect(await changes.locator(".added").count()).toBe(1);
    expect(await findViolations(open.page)).toEqual([]);
    await dialog.getByRole("button", { name: "Publish" }).click();
    await expectShown(open.page.getByText(/^Published as msg_/));
    await open.page.locator(".drawer").getByText("Published again as").getByRole("link").click();
    await expectShown(open.page.locator(".drawer").getByText("Retry of"));
    await open.page
      .locator(".drawer")
      .getByRole("link", { name: /^dead letter/ })
      .click();
    await expectShown(open.page.getByRole("complementary", { name: /^Dead letter/ }));
  });

  test("a dead letter is retried from its group, after a dry run", async () => {
    await openPage(open.page, open.server, "/dead-letters");
    const group = open.page.locator("article.group").filter({ hasText: "unknown sku" });
    await group.getByRole("button", { name: "Retry" }).click();
    await expectShown(open.page.getByRole("heading", { name: "Retry 2 dead letters" }));
    await open.page.getByRole("button", { name: "Retry 2", exact: true }).click();
    const bulk = open.page.getByRole("region", { name: "Retry dead letters" });
    // The destination still fails, so the job ends after its canary, and nothing else was sent.
    await expectShown(bulk.getByText("Failed", { exact: true }));
    await expectShown(bulk.getByText("1 unchanged"));
  });

  test("a whole group is changed and sent again, after a dry run", async () => {
    const { page, server } = open;
    const { url } = server.destinations;
    for (const version of [1, 2])
      await call(server, `POST /v2/publish/${url}/fail/changed`, {
        headers: { "svc-retries": "0", "svc-label": "group-change" },
        body: JSON.stringify({ version, keeps: "this" }),
      });
    const read = async (): Promise<{ messageId: string }[]> =>
      ((await call(server, "GET /v2/dlq?label=group-change")) as { messages: { messageId: string }[] })
        .messages;
    await until("the dead letters", async () => (await read()).length === 2);
    await openPage(page, server, "/dead-letters");
    const group = page.locator("article.group").filter({ hasText: "/fail/changed" });
    await group.getByRole("button", { name: /^Retry/ }).click();
    await expectShown(page.getByRole("heading", { name: "Retry 2 dead letters" }));
    await page.getByRole("button", { name: "Change and retry", exact: true }).click();
    const bulk = page.locator(".bulk");
    const retry = bulk.getByRole("button", { name: "Retry 2", exact: true });
    const patch = bulk.getByRole("textbox", { name: /^JSON patch/ });
    await patch.fill('{"op": "replace"}');
    await expectShown(bulk.getByText("The JSON patch is not a list of operations."));
    expect(await retry.getAttribute("aria-disabled")).toBe("true");
    await patch.fill('[{"op": "replace", "path": "/version", "value": 3}]');
    await bulk.getByRole("textbox", { name: /^New URL/ }).fill(`${url}/ok/changed`);
    await bulk.getByRole("textbox", { name: /^Headers/ }).fill("X-Changed: yes");
    // The request, as code to copy, has the whole change.
    await bulk.getByText("As code").click();
    await expectShown(bulk.locator("pre").filter({ hasText: "X-Changed" }).first());
    expect(await findViolations(page)).toEqual([]);
    await retry.click();
    await expectShown(bulk.getByText("Done", { exact: true }));
    await until("the dead letters are gone", async () => (await read()).length === 0);
    const { events } = (await call(server, "GET /v2/logs?label=group-change&state=DELIVERED")) as {
      events: { messageId: string; url: string; body: string }[];
    };
    expect(events).toHaveLength(2);
    for (const event of events) {
      expect(event.url).toBe(`${url}/ok/changed`);
      const body = Buffer.from(event.body, "base64").toString();
      expect(JSON.parse(body)).toEqual({ version: 3, keeps: "this" });
    }
  });

  test("rejected calls of a source are sent once its secret is corrected", async () => {
    const { page, server } = open;
    const secret = "the-secret-of-the-sender";
    const made = (await call(server, "POST /v2/sources", {
      body: JSON.stringify({
        ...{ name: "kept", destination: `${server.destinations.url}/ok/kept`, keepsRejected: true },
        settings: { "Svc-Label": "kept-calls" },
        verification: { scheme: "github", secret: "a-wrong-secret-of-it" },
      }),
    })) as { url: string };
    for (const order of [1, 2]) {
      const body = JSON.stringify({ order });
      const signature = createHmac("sha256", secret).update(body).digest("hex");
      const headers = { "x-hub-signature-256": `sha256=${signature}` };
      expect((await fetch(made.url, { method: "POST", headers, body })).status).toBe(401);
    }
    await openPage(page, server, "/sources");
    const row = page.getByRole("row").filter({ hasText: "kept" });
    await expectShown(row.getByText(/^Rejected 2 calls within an hour/));
    const sendKept = async (result: string): Promise<void> => {
      await row.getByRole("button", { name: "Rejected" }).click();
      await page.getByRole("button", { name: "Send rejected calls" }).click();
      await expectShown(page.getByRole("dialog").getByText(result));
      expect(await findViolations(page)).toEqual([]);
      await page.keyboard.press("Escape");
    };
    await sendKept("0 sent, 0 repeated by the sender, 2 still rejected.");
    await row.getByRole("button", { name: "Edit" }).click();
    await page.getByRole("combobox", { name: /^Verification/ }).selectOption("GitHub");
    await page.getByRole("textbox", { name: /^Secret/ }).fill(secret);
    await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await sendKept("2 sent, 0 repeated by the sender, 0 still rejected.");
    await until("the calls are delivered", async () => {
      const found = await call(server, "GET /v2/logs?label=kept-calls&state=DELIVERED");
      return (found as { events: unknown[] }).events.length === 2;
    });
  });

  test("the page of outboxes shows what waits, why one fails, and removes one", async () => {
    const { page, server } = open;
    const common = { schema: "waypost_outbox", tokenId: "tok_1", pooled: false, createdAt: Date.now() };
    const outboxes = [
      {
        ...common,
        name: "shop",
        state: "running",
        taken: 1_204,
        takenAt: Date.now(),
        waiting: 0,
        rejected: 0,
      },
      {
        ...{
          ...common,
          name: "billing",
          state: "failing",
          taken: 7,
          waiting: 12,
          oldestAt: Date.now() - 60_000,
        },
        ...{ rejected: 1, error: "the database does not answer <b>", errorAt: Date.now() },
      },
    ];
    await page.route("**/v2/outboxes", (route) => route.fulfill({ json: { outboxes } }));
    await openPage(page, server, "/outboxes");
    const row = (name: string) => page.getByRole("row").filter({ hasText: name });
    await expectShown(row("shop").getByText("Running"));
    await expectShown(row("shop").getByText("1,204"));
    await expectShown(row("billing").getByText("Failing"));
    await expectShown(row("billing").getByText("the database does not answer <b>"));
    await expectShown(row("billing").getByText(/^12 since/));
    expect(await findViolations(page)).toEqual([]);
    await row("billing").getByRole("button", { name: "Remove outbox billing" }).click();
    const removed = page.waitForRequest(
      (request) => request.method() === "DELETE" && request.url().endsWith("/v2/outboxes/billing"),
    );
    await page.getByRole("dialog").getByRole("button", { name: "Remove outbox" }).click();
    expect((await (await removed).response())?.status()).toBe(200);
    await page.unrouteAll({ behavior: "ignoreErrors" });
  });

  test("a job without a canary goes through, and the list of jobs has it", { tags: "long" }, async () => {
    await openPage(open.page, open.server, "/dead-letters?label=parcel-977");
    await open.page.getByRole("button", { name: "Act on all" }).click();
    await open.page.getByRole("checkbox", { name: /Canary/ }).uncheck();
    await open.page.getByRole("button", { name: "Delete", exact: true }).click();
    await open.page.getByRole("button", { name: "Delete 5", exact: true }).click();
    await open.page.getByRole("dialog").getByRole("button", { name: "Delete 5", exact: true }).click();
    await expectShown(
      open.page.getByRole("region", { name: "Delete dead letters" }).getByText("Done", { exact: true }),
    );
    await openPage(open.page, open.server, "/jobs");
    await expectShown(open.page.locator(".job").first().getByText("Delete 5 dead letters"));
  });

  test("a slow job continues when its page is left, and can be stopped", async () => {
    // The job takes longer than the test, even on a slow machine. For 100 or more, one must type the number.
    const count = 99;
    const one = {
      destination: `${open.server.destinations.url}/ok/slow-job`,
      headers: { "svc-delay": "1d", "svc-label": "slow-job" },
    };
    const body = JSON.stringify(Array.from({ length: count }, () => one));
    await call(open.server, "POST /v2/batch", { body });
    await openPage(open.page, open.server, "/messages?label=slow-job");
    await open.page.getByRole("button", { name: "Act on all" }).click();
    await open.page.getByLabel("Maximum per second").fill("1");
    const cancel = { name: `Cancel ${count}`, exact: true };
    await open.page.getByRole("button", cancel).click();
    await open.page.getByRole("dialog").getByRole("button", cancel).click();
    await open.page.getByRole("link", { name: "All jobs" }).click();
    const job = open.page.locator(".job").first();
    await expectShown(job.getByText(`Cancel ${count} messages`));
    await job.getByRole("button", { name: "Stop" }).click();
    await expectShown(job.getByText("Stopped"));
  });

  test("a message is published with settings, and found by its link", async () => {
    await openPage(open.page, open.server, "/publish");
    await open.page
      .getByRole("textbox", { name: "Destination" })
      .fill(`${open.server.destinations.url}/ok/published`);
    await open.page.getByLabel("Body", { exact: true }).fill('{"from": "the console"}');
    await open.page.getByLabel("Delay", { exact: true }).fill("1h");
    await open.page.locator("form").getByRole("button", { name: "Publish" }).click();
    await open.page.getByRole("status").getByRole("link", { name: /^msg_/ }).click();
    await expectShown(open.page.locator(".drawer").getByText("the console"));
    await open.page.getByRole("button", { name: "Send now" }).click();
    await expectShown(open.page.getByText("The message is sent now"));
  });

  test("a source is created, its rejected call is shown, and it is changed and paused", async () => {
    await openPage(open.page, open.server, "/sources");
    await open.page.getByRole("button", { name: "New source" }).click();
    const dialog = open.page.getByRole("dialog", { name: "New source" });
    await dialog.getByRole("textbox", { name: /^Name/ }).fill("shop");
    await dialog
      .getByRole("textbox", { name: /^Destination/ })
      .fill(`${open.server.destinations.url}/ok/shop`);
    await dialog.getByRole("combobox", { name: /^Verification/ }).selectOption("GitHub");
    await dialog.getByRole("textbox", { name: /^Secret/ }).fill("a-secret-of-the-shop");
    await dialog.getByRole("textbox", { name: /^Settings/ }).fill("Svc-Retries: 5\nSvc-Label: shop");
    expect(await findViolations(open.page)).toEqual([]);
    await dialog.getByRole("button", { name: "Create source" }).click();
    const url = await open.page.getByRole("status").locator("code").innerText();
    expect((await fetch(url, { method: "POST", body: "{}" })).status).toBe(401);
    await openPage(open.page, open.server, "/sources");
    const row = open.page.getByRole("row").filter({ hasText: "shop" });
    await row.getByRole("button", { name: "Rejected" }).click();
    await expectShown(
      open.page
        .getByRole("dialog")
        .getByText(/X-Hub-Signature-256/i)
        .first(),
    );
    await open.page.keyboard.press("Escape");
    await row.getByRole("button", { name: "Edit" }).click();
    await open.page.getByRole("textbox", { name: /^Name/ }).fill("shop of Maria");
    await open.page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
    await expectShown(row.getByText("shop of Maria"));
    await row.getByRole("button", { name: "Pause" }).click();
    await expectShown(row.getByText("Paused", { exact: true }));
    const read = (
      (await call(open.server, "GET /v2/sources")) as { sources: { name: string; settings: object }[] }
    ).sources.find(({ name }) => name === "shop of Maria");
    expect(read?.settings).toMatchObject({ "Svc-Retries": "5", "Svc-Label": "shop" });
  });

  test("the signing keys are rotated: the next key becomes the current one", { tags: "long" }, async () => {
    await openPage(open.page, open.server, "/settings?part=keys");
    await open.page.getByRole("button", { name: "Show: Next" }).click();
    const next = await open.page.locator(".secret code").nth(1).innerText();
    await open.page.getByRole("button", { name: "Rotate" }).click();
    await open.page.getByRole("dialog").getByRole("button", { name: "Rotate" }).click();
    await open.page.getByRole("dialog").waitFor({ state: "detached" });
    await open.page.getByRole("button", { name: "Show: Current" }).click();
    await expectShown(open.page.locator(".secret code").first().getByText(next));
    await open.page.getByRole("button", { name: "Rotate" }).click();
    await open.page.getByRole("dialog").getByRole("button", { name: "Rotate" }).click();
    await expectShown(open.page.getByRole("dialog").getByText("24 hours", { exact: false }).first());
    await open.page.keyboard.press("Escape");
  });

  test(
    "a URL group is created, gets settings and another endpoint, and is deleted",
    { tags: "long" },
    async () => {
      const { page, server } = open;
      await openPage(page, server, "/url-groups");
      await page.getByRole("button", { name: "New group" }).click();
      await page.getByLabel("Name of the group").fill("couriers");
      await page.getByLabel("URL", { exact: true }).fill(`${server.destinations.url}/ok/north`);
      await page.getByRole("dialog").getByRole("button", { name: "Create group" }).click();
      const group = page.getByRole("region", { name: "couriers" });
      await group.getByRole("button", { name: "Settings" }).click();
      await page.getByRole("dialog").getByLabel("Settings", { exact: true }).fill("Svc-Retries: 7");
      await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
      await page.getByRole("dialog").waitFor({ state: "detached" });
      const read = () => call(server, "GET /v2/topics/couriers") as Promise<{ endpoints: unknown[] }>;
      expect(await read()).toMatchObject({ headers: { "Svc-Retries": ["7"] } });
      await group.getByRole("button", { name: "Add endpoint" }).click();
      await page.getByLabel("URL", { exact: true }).fill(`${server.destinations.url}/ok/south`);
      await page.getByRole("dialog").getByRole("button", { name: "Add endpoint" }).click();
      await expectShown(group.getByText("/ok/south"));
      await group.getByRole("button", { name: /^Remove .*north/ }).click();
      await expectShown(page.getByText("The endpoint is removed"));
      expect((await read()).endpoints).toHaveLength(1);
      await group.getByRole("button", { name: "Delete group couriers" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Delete group" }).click();
      await group.waitFor({ state: "detached" });
    },
  );

  test("alerts are set, changed and removed", { tags: "long" }, async () => {
    await openPage(open.page, open.server, "/settings?part=alerts");
    await open.page.getByRole("button", { name: "Set a URL" }).click();
    const dialog = open.page.getByRole("dialog", { name: "Alerts" });
    await dialog.getByLabel("URL", { exact: true }).fill("https://pager.example/hook");
    await dialog.getByLabel("a host has recovered").uncheck();
    await dialog.getByRole("button", { name: "Make a secret" }).click();
    await dialog.getByRole("button", { name: "Save" }).click();
    await expectShown(open.page.getByText("their own secret"));
    const { events } = (await call(open.server, "GET /v2/alerts")) as { events: string[] };
    expect(events).toContain("host.failing");
    expect(events).not.toContain("host.recovered");
    await open.page.getByRole("button", { name: "Turn off alerts" }).click();
    await open.page.getByRole("dialog").getByRole("button", { name: "Remove URL" }).click();
    await expectShown(open.page.getByText("No alerts are sent"));
  });

  test("a schedule shows its next five times, and runs now", { tags: "long" }, async () => {
    await openPage(open.page, open.server, "/schedules");
    await open.page.getByText("morning-report").click();
    const dialog = open.page.getByRole("dialog", { name: "Schedule morning-report" });
    await expectShown(dialog.getByRole("listitem").nth(4));
    // A schedule fires at whole seconds.
    const times = await dialog.getByRole("listitem").allInnerTexts();
    for (const time of times) expect(time).toMatch(/^\d+ \w+ \d{4},? \d{2}:\d{2}:\d{2} \S+/);
    await dialog.getByRole("button", { name: "Run now" }).click();
    await expectShown(open.page.getByText("Schedule morning-report has published its message"));
    await open.page.keyboard.press("Escape");
  });

  test("a run that waits for an event continues when it is notified", async () => {
    await openPage(open.page, open.server, "/events");
    const row = open.page.getByRole("row").filter({ hasText: "shipped-order-48220" });
    await expectShown(row.getByRole("link", { name: "order-48220" }));
    await row.getByRole("button", { name: "Notify" }).click();
    await open.page.getByRole("textbox", { name: /^Data/ }).fill('{"by": "courier"}');
    await open.page.getByRole("dialog").getByRole("button", { name: "Notify" }).click();
    await row.waitFor({ state: "detached" });
    await openPage(open.page, open.server, "/runs/order-48220");
    await expectShown(open.page.locator(".tl-row").getByText("invoice").first());
  });

  test("the Undo of an action stays while it has the focus", { tags: "long" }, async () => {
    const page = await open.page.context().newPage();
    await page.clock.install();
    await openPage(page, open.server, "/queues/empty");
    await page.getByRole("button", { name: "Pause: Queue empty" }).press("Enter");
    const undo = page.getByRole("button", { name: "Undo" });
    await undo.focus();
    await page.clock.runFor(60_000);
    expect(await undo.count()).toBe(1);
    await page.keyboard.press("Enter");
    await expectShown(page.getByText("Undone"));
    await page.clock.runFor(60_000);
    await page.getByText("Undone").waitFor({ state: "detached" });
    await page.close();
  });

  test("a token is created with chosen rights, destinations and an end", { tags: "long" }, async () => {
    const { page, server } = open;
    await openPage(page, server, "/settings");
    await page.getByRole("button", { name: "New token" }).click();
    const dialog = page.getByRole("dialog", { name: "New token" });
    await dialog.getByLabel("Name", { exact: true }).fill("chosen");
    await dialog.getByLabel("read").check();
    const destinations = [`${server.destinations.url}/ok/*`, "queue:empty"];
    await dialog.getByLabel("Destinations", { exact: true }).fill(destinations.join(", "));
    await dialog.getByLabel("Expires after", { exact: true }).fill("30d");
    await dialog.getByRole("button", { name: "Create token" }).click();
    const token = await page.getByRole("status").locator("code").innerText();
    const as = { ...server, token };
    const { credential } = (await call(as, "GET /v2/me")) as { credential: { expiresAt: number } };
    expect(credential).toMatchObject({ kind: "token", verbs: ["publish", "read"], destinations });
    expect(Math.round((credential.expiresAt - Date.now()) / 86_400_000)).toBe(30);
    await call(as, `POST /v2/enqueue/empty/${server.destinations.url}/ok/chosen`);
    const elsewhere = call(as, `POST /v2/enqueue/empty/${server.destinations.url}/elsewhere`);
    await expect(elsewhere).rejects.toThrow("403");

    await page.getByRole("button", { name: "New token" }).click();
    await dialog.getByLabel("Name", { exact: true }).fill("all of them");
    for (const verb of ["publish", "read", "manage"]) await dialog.getByLabel(verb).check();
    await dialog.getByRole("button", { name: "Create token" }).click();
    await expectShown(page.getByRole("heading", { name: "Token “all of them” is created" }));
    const all = { ...server, token: await page.getByRole("status").locator("code").innerText() };
    expect(await call(all, "GET /v2/me")).toMatchObject({
      credential: { kind: "token", verbs: ["publish", "read", "manage"] },
    });
  });

  test("a token is created, shown once, and revoked", async () => {
    await openPage(open.page, open.server, "/settings");
    await open.page.getByRole("button", { name: "New token" }).click();
    await open.page.getByLabel("Name").fill("from the console");
    await open.page.getByRole("button", { name: "Create token" }).click();
    await expectShown(open.page.getByRole("heading", { name: "Token “from the console” is created" }));
    const row = open.page.getByRole("row").filter({ hasText: "from the console" });
    await row.getByRole("button", { name: "Revoke" }).click();
    await open.page.getByRole("dialog").getByRole("button", { name: "Revoke token" }).click();
    await row.waitFor({ state: "detached" });
    expect(await row.count()).toBe(0);
  });
});
