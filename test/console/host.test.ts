import { expect, test } from "vitest";
import { expectShown, findViolations } from "./measures.ts";
import { describeConsole } from "./openConsole.ts";
import { openPage } from "./pages.ts";
import { call } from "./seed.ts";

describeConsole("the page of a host", (open) => {
  test("shows what is being sent to it, with since and timeout, and ends it", async () => {
    const { page, server } = open;
    const { host } = new URL(server.destinations.url);
    const url = `${server.destinations.url}/slow/hang`;
    const headers = { "Svc-Retry-Delay": "3600000" };
    const published = await call(server, `POST /v2/publish/${url}`, { headers });
    const { messageId } = published as { messageId: string };
    await openPage(page, server, "/hosts");
    await page.getByRole("row").filter({ hasText: host }).first().click();
    await page.waitForURL(/\/hosts\/127/);
    const row = page.getByRole("row").filter({ hasText: messageId });
    await expectShown(row.getByText(/Being sent since/));
    await expectShown(row.getByText(/^timeout at/));
    expect(await findViolations(page)).toEqual([]);
    await openPage(page, server, `/messages?open=${messageId}`);
    await expectShown(page.locator(".drawer").getByText(/Being sent for .* since .*, timeout at/));
    await expectShown(page.locator(".drawer .gates").getByText("sends it now"));
    expect(await page.locator(".drawer .gates .shut").count()).toBe(0);
    await page.locator(".drawer").getByRole("link", { name: "Open host" }).click();
    await page.getByRole("button", { name: "End attempts and retry" }).click();
    const dialog = page.getByRole("dialog", { name: `End attempts to ${host}` });
    await dialog.getByRole("button", { name: "End attempts and retry" }).click();
    await expectShown(page.getByText("Nothing is being sent to this host"));
    await openPage(page, server, `/messages?open=${messageId}`);
    await expectShown(page.locator(".drawer").getByText("ended by operator").first());
  });
});
