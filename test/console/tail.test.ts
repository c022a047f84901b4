import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { expectShown } from "./measures.ts";
import { describeConsole } from "./openConsole.ts";
import { openPage } from "./pages.ts";
import { call } from "./seed.ts";

/** Shows or hides the page, as if another tab were opened. It is plain JavaScript for the page. */
const setVisibility = (state: "hidden" | "visible"): string => `
  Object.defineProperty(document, "visibilityState", { value: "${state}", configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
`;

describeConsole(
  "the tail of the console",
  (open) => {
    const publish = (label: string) =>
      call(open.server, `POST /v2/publish/${open.server.destinations.url}/ok/tail`, {
        headers: { "svc-label": label },
        body: "{}",
      });
    const line = (page: Page, label: string) => page.locator(".tail-row").filter({ hasText: label });

    test("a filter shows only its entries, and a lost connection is opened again with a gap", async () => {
      const { page } = open;
      await openPage(page, open.server, "/tail?label=wanted");
      await expectShown(page.getByText("Follows the log"));
      await publish("unwanted");
      await publish("wanted");
      await expectShown(line(page, "wanted").first());
      expect(await line(page, "unwanted").count()).toBe(0);
      // A stream that ends after its first line is a lost connection.
      await page.route("**/v2/logs/tail*", (route) => route.fulfill({ body: '{"heartbeat": 1}\n' }));
      await page.reload();
      await expectShown(page.getByText(/^Not connected: the connection was lost/));
      await page.unrouteAll({ behavior: "ignoreErrors" });
      await expectShown(page.getByText("Follows the log"));
      await expectShown(page.getByText("Entries may be missing: the connection was lost."));
    });

    test("a hidden page gives its connection back, and a shown one opens it again", async () => {
      const { page } = open;
      await openPage(page, open.server, "/tail?label=while-hidden");
      await expectShown(page.getByText("Follows the log"));
      await publish("while-hidden");
      await expectShown(line(page, "while-hidden").first());
      const isTail = (request: { url(): string }) => request.url().includes("/v2/logs/tail");
      const ended = page.waitForEvent("requestfailed", isTail);
      await page.evaluate(setVisibility("hidden"));
      await ended;
      // Without it, no entry is missing.
      await publish("while-hidden");
      const again = page.waitForEvent("request", isTail);
      await page.evaluate(setVisibility("visible"));
      await again;
      await expectShown(page.getByText("Entries may be missing: the page was hidden."));
    });

    test("the server's count of left-out entries is shown, with a link to them", async () => {
      const { page } = open;
      const lines = [{ heartbeat: 1 }, { dropped: 1_234, fromDate: 2, toDate: 3 }];
      await page.route("**/v2/logs/tail*", (route) =>
        route.fulfill({ body: lines.map((one) => `${JSON.stringify(one)}\n`).join("") }),
      );
      await openPage(page, open.server, "/tail");
      await expectShown(page.getByText("1,234 entries left out by the server").first());
      await page.getByRole("link", { name: "Show them in the log" }).first().click();
      await page.waitForURL(/fromDate=2&toDate=3/);
      await page.unrouteAll({ behavior: "ignoreErrors" });
    });

    test("a session that may only read follows the log", async () => {
      const body = JSON.stringify({ name: "follows", verbs: ["read"] });
      const made = (await call(open.server, "POST /v2/tokens", { body })) as { token: string };
      const page = await (await open.newContext()).newPage();
      await page.goto(`${open.server.url}/console/tail`);
      await page.getByRole("button", { name: "Token" }).click();
      await page.getByRole("textbox", { name: "Token" }).fill(made.token);
      await page.getByRole("button", { name: "Sign in" }).click();
      await expectShown(page.getByText("Follows the log"));
      await publish("for-the-reader");
      await expectShown(line(page, "for-the-reader").first());
      await page.context().close();
    });
  },
  { tags: ["long"] },
);
