import { expect, test } from "vitest";
import { expectShown, findViolations } from "./measures.ts";
import { describeConsole } from "./openConsole.ts";
import { openPage } from "./pages.ts";
import { call, until } from "./seed.ts";

type Page = { events: { messageId: string; state: string }[] };

describeConsole("the attempts of a message", (open) => {
  test("have one row each, with their parts and a button that retries", async () => {
    const { page, server } = open;
    const url = `${server.destinations.url}/unknown-sku/tries`;
    const headers = { "svc-retries": "2", "svc-retry-delay": "100", "svc-label": "tries" };
    const published = await call(server, `POST /v2/publish/${url}`, { headers, body: "{}" });
    const { messageId } = published as { messageId: string };
    await until("the failure", async () => {
      const { events } = (await call(server, `GET /v2/logs?messageId=${messageId}&state=FAILED`)) as Page;
      return events.length > 0;
    });
    await openPage(page, server, "/messages?view=FAILED&label=tries");
    const listed = page.getByRole("row").filter({ hasText: "/unknown-sku/tries" });
    await expectShown(listed.getByRole("button", { name: "Retry" }));
    await listed.getByText("POST").click();
    const drawer = page.getByRole("complementary", { name: `Message ${messageId}` });
    await expectShown(drawer.getByText("3 attempts of up to 3, newest first"));
    expect(await drawer.locator(".attempts > li:not(.gap)").count()).toBe(4);
    expect(await drawer.locator(".attempts .phases").count()).toBe(3);
    await expectShown(drawer.getByText("3. 422, the last one"));
    await expectShown(drawer.getByText(/first byte \d/).first());
    expect(await findViolations(page)).toEqual([]);
    await drawer.getByRole("link", { name: "Dead letter" }).click();
    const letter = page.getByRole("complementary", { name: /^Dead letter/ });
    await expectShown(letter.getByText("3 attempts of up to 3, newest first"));
    await letter.getByRole("link", { name: "Message and its log" }).click();
    await expectShown(drawer.getByText("3. 422, the last one"));
    await page.keyboard.press("Escape");
    await listed.getByRole("button", { name: "Retry" }).click();
    await expectShown(page.getByText("The message is published again"));
  });
});
