import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { operatorPassword } from "./consoleServer.ts";
import { countShifts, expectShown, findViolations, readShifts } from "./measures.ts";
import { describeConsole } from "./openConsole.ts";
import { openPage } from "./pages.ts";

describeConsole(
  "the page of the operator",
  (open) => {
    test("accounts are created, limited, disabled and deleted; nothing moves", async () => {
      const page = await (await open.newContext()).newPage();
      await page.goto(`${open.server.url}/console/operator`);
      await page.getByRole("button", { name: "Operator" }).click();
      await page.getByLabel("Password").fill(operatorPassword);
      await page.getByRole("button", { name: "Sign in" }).click();
      await expectShown(page.locator("nav.side"));
      await page.addInitScript({ content: countShifts });
      for (const colorScheme of ["light", "dark"] as const) {
        await page.emulateMedia({ colorScheme });
        let asked = 0;
        await page.route("**/v2/**", async (route) => {
          // In the dark, the first request is answered last.
          if (colorScheme === "dark") await sleep(Math.max(0, 400 - 100 * asked++));
          await route.continue();
        });
        await openPage(page, open.server, "/operator");
        expect(await findViolations(page)).toEqual([]);
        expect(await readShifts(page)).toEqual([]);
        await page.unrouteAll({ behavior: "ignoreErrors" });
      }
      const node = page.getByRole("region", { name: "Nodes" }).getByRole("row").nth(1);
      await expectShown(node.getByText("responds"));

      await page.getByRole("button", { name: "New account" }).click();
      const dialog = page.getByRole("dialog", { name: "New account" });
      await dialog.getByLabel("Name", { exact: true }).fill("shop");
      await dialog.getByText("Limits", { exact: true }).click();
      await dialog.getByLabel("Queues", { exact: true }).fill("7");
      expect(await findViolations(page)).toEqual([]);
      await dialog.getByRole("button", { name: "Create account" }).click();
      const token = await page.getByRole("status").locator("dd").nth(1).locator("code").innerText();
      const as = { headers: { authorization: `Bearer ${token}` } };
      expect((await fetch(`${open.server.url}/v2/queues`, as)).status).toBe(200);

      const row = page.getByRole("row").filter({ hasText: "shop" });
      await row.getByRole("button", { name: "Edit" }).click();
      const form = page.getByRole("dialog", { name: "Account shop" });
      await form.getByRole("combobox", { name: "Plan" }).selectOption("free");
      await form.getByText("Limits", { exact: true }).click();
      expect(await form.getByLabel("Queues", { exact: true }).inputValue()).toBe("7");
      await form.getByLabel("Queues", { exact: true }).fill("");
      await form.getByLabel("Longest delay").fill("2d");
      await form.getByRole("button", { name: "Save" }).click();
      await expectShown(row.getByText("free"));
      const authorization = `Basic ${Buffer.from(`operator:${operatorPassword}`).toString("base64")}`;
      const read = await fetch(`${open.server.url}/v2/admin/accounts/shop`, { headers: { authorization } });
      expect(await read.json()).toMatchObject({
        plan: "free",
        ownLimits: ["delay"],
        limits: { delay: 172_800_000 },
      });

      await row.getByRole("button", { name: "Disable" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Disable account" }).click();
      await row.getByRole("button", { name: "Delete account shop" }).click();
      const confirm = page.getByRole("dialog", { name: "Delete account shop" });
      await confirm.getByRole("textbox").fill("shop");
      await confirm.getByRole("button", { name: "Delete account" }).click();
      await row.waitFor({ state: "detached" });
      expect((await fetch(`${open.server.url}/v2/queues`, as)).status).toBe(401);
      await page.context().close();
    });

    test("the credentials of an account are replaced, shown until dismissed, and valid", async () => {
      const page = await (await open.newContext()).newPage();
      await page.goto(`${open.server.url}/console/settings`);
      const logIn = async (password: string): Promise<void> => {
        await page.getByLabel("Account", { exact: true }).fill("testUser2");
        await page.getByLabel("Password", { exact: true }).fill(password);
        await page.getByRole("button", { name: "Sign in" }).click();
      };
      await logIn("testPassword");
      await page.getByRole("button", { name: "Replace", exact: true }).click();
      const confirm = page.getByRole("dialog", { name: "Replace the credentials of testUser2" });
      await confirm.getByRole("textbox").fill("testUser2");
      await confirm.getByRole("button", { name: "Replace credentials" }).click();
      const dialog = page.getByRole("dialog", { name: "New credentials of testUser2" });
      await expectShown(dialog);
      for (let at = 0; at < 3; at++) await page.keyboard.press("Escape");
      await page.mouse.click(5, 5);
      expect(await findViolations(page)).toEqual([]);
      const secrets = await dialog.locator("code").allInnerTexts();
      const [password = "", token = "", readOnly = ""] = secrets;
      const statusOf = async (bearer: string, method = "GET"): Promise<number> => {
        const headers = { authorization: `Bearer ${bearer}` };
        return (await fetch(`${open.server.url}/v2/queues/one/pause`, { method, headers })).status;
      };
      expect(await statusOf(token, "POST")).not.toBe(401);
      expect(await statusOf(readOnly, "POST")).toBe(403);
      await dialog.getByRole("button", { name: "I have copied them" }).click();
      await logIn("testPassword");
      await expectShown(page.getByRole("alert"));
      await logIn(password);
      await expectShown(page.getByRole("region", { name: "Password and main tokens" }));
      await page.context().close();
    });

    test("a session of the operator continues after it has replaced the credentials", async () => {
      const page = await (await open.newContext()).newPage();
      await page.goto(`${open.server.url}/console/settings`);
      await page.getByRole("button", { name: "Operator" }).click();
      await page.getByLabel("Password").fill(operatorPassword);
      await page.getByRole("button", { name: "Sign in" }).click();
      await page.getByRole("button", { name: "No account" }).click();
      await page.getByLabel("Switch to account").selectOption("testUser2");
      await page.getByRole("button", { name: "Replace", exact: true }).click();
      const confirm = page.getByRole("dialog", { name: "Replace the credentials of testUser2" });
      await confirm.getByRole("textbox").fill("testUser2");
      await confirm.getByRole("button", { name: "Replace credentials" }).click();
      await page.getByRole("button", { name: "I have copied them" }).click();
      await expectShown(page.getByRole("heading", { name: "Choose an account" }));
      await page.context().close();
    });
  },
  { isEmpty: true, tags: ["long"] },
);
