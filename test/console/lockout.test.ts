import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { operatorPassword } from "./consoleServer.ts";
import { expectShown } from "./measures.ts";
import { describeConsole } from "./openConsole.ts";
import { openPage } from "./pages.ts";

describeConsole(
  "the lockout of the log-in",
  (open) => {
    test("after too many wrong passwords, the page says when to try again", async () => {
      const page = await (await open.newContext()).newPage();
      const refusal = page.getByRole("alert");
      const give = async (password: string): Promise<void> => {
        await page.getByLabel("Password").fill(password);
        await page.getByLabel("Password").press("Enter");
      };
      await page.goto(`${open.server.url}/console/`);
      await page.getByLabel("Account").fill("testUser1");
      await give("wrong");
      await expectShown(refusal.getByText("User name or password is wrong or was replaced."));
      await failOften(page, open.server.url);
      await give("wrong again");
      await expectShown(refusal.getByText(/^More than 20 failed attempts in a minute; retry in \d+ s/));
      expect(await page.getByLabel("Password").getAttribute("aria-invalid")).toBe("true");

      // The password of the operator is not even compared while attempts with it are locked out.
      await page.getByRole("button", { name: "Operator" }).click();
      await give(operatorPassword);
      await expectShown(refusal.getByText(/^More than 20 failed attempts in a minute; retry in \d+ s/));
      expect(await page.locator("nav.side").count()).toBe(0);

      // The right password of an account ends the wait at once.
      await page.getByRole("button", { name: "Account" }).click();
      await page.getByLabel("Account").fill("testUser1");
      await give("testPassword");
      await expectShown(page.locator("nav.side"));
      await page.context().close();
    });

    test("a session that is open already is not affected", async () => {
      await openPage(open.page, open.server, "/queues");
      await expectShown(open.page.getByRole("heading", { name: "No queues yet" }));
    });
  },
  { isEmpty: true, tags: ["long"] },
);

/** Sends wrong passwords as the page does, without the time that typing takes. */
async function failOften(page: Page, url: string): Promise<void> {
  const headers = { origin: url, "sec-fetch-site": "same-origin" };
  for (const data of [{ account: "testUser1", password: "wrong" }, { operatorPassword: "wrong" }])
    for (let at = 0; at < 21; at++) {
      const response = await page.request.post(`${url}/console/session`, { headers, data });
      expect([401, 429]).toContain(response.status());
    }
}
