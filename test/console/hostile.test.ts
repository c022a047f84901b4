import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { operatorPassword } from "./consoleServer.ts";
import type { ConsoleServer } from "./consoleServer.ts";
import { hostileText } from "./hostile.ts";
import { describeConsole } from "./openConsole.ts";
import { listDialogs, listPages, openPage } from "./pages.ts";
import { publishHostile, seedHostile } from "./seedHostile.ts";

describeConsole(
  "hostile content on every page",
  (open) => {
    test("no page runs or loads it, or shows a character that deceives", async () => {
      const { page, server } = open;
      const shown: string[] = [];
      const deceiving: Record<string, unknown> = {};
      for (const [name, visit] of Object.entries(hostilePages())) {
        await visit(page, server);
        const { hasText, deceives } = await examine(page, name);
        if (deceives.length > 0) deceiving[name] = deceives;
        if (hasText) shown.push(name);
      }
      expect(deceiving).toEqual({});
      // A page that does not show the text proves nothing.
      expect(shown).toEqual(expect.arrayContaining(pagesWithIt));
    });

    test("a field with hidden characters has a hint that counts them", async () => {
      await listDialogs()["replay"]?.(open.page, open.server);
      const body = open.page.getByRole("dialog").getByRole("textbox", { name: "Body" });
      const id = await body.getAttribute("aria-describedby");
      expect(await open.page.locator(`[id="${id}"]`).innerText()).toBe("Hidden characters in this text: 2.");
    });

    test("the operator sees the hostile name of an account as text", async () => {
      const page = await (await open.newContext()).newPage();
      page.on("console", (message) => message.type() === "error" && open.reports.push(message.text()));
      await page.goto(`${open.server.url}/console/operator`);
      await page.getByRole("button", { name: "Operator" }).click();
      await page.getByLabel("Password").fill(operatorPassword);
      await page.getByLabel("Password").press("Enter");
      await page.getByRole("row").filter({ hasText: hostileText.visiblePart }).waitFor();
      expect(await examine(page, "operator")).toEqual({ hasText: true, deceives: [] });
      await page.getByRole("button", { name: "No account" }).click();
      await page.getByLabel("Switch to account").waitFor();
      expect(await page.title()).not.toContain("owned");
      await page.context().close();
    });

    test("a body of 1 MiB is cut, and shown whole on demand", async () => {
      const { page, server } = open;
      await openPage(page, server, "/dead-letters?view=list&label=large");
      const id = await page.locator("tbody .id").first().getAttribute("title");
      await openPage(page, server, `/dead-letters?open=${id}`);
      const body = page.locator(".drawer").getByLabel("Body of the message", { exact: true });
      await body.waitFor();
      expect((await body.innerText()).length).toBeLessThan(17 * 1024);
      await page.getByRole("button", { name: "Load all" }).click();
      await page.getByRole("button", { name: "Load all" }).waitFor({ state: "detached" });
      expect((await body.innerText()).length).toBeGreaterThan(900 * 1024);
    });
  },
  { fill: seedHostile, tags: ["long"] },
);

/**
 * Examines a page: nothing of the hostile text may have run. Reports whether the page shows it, and what
 * deceives.
 */
async function examine(page: Page, name: string): Promise<{ hasText: boolean; deceives: string[] }> {
  expect(await page.title(), name).not.toContain("owned");
  expect(await page.locator("img, iframe, object, embed, base").count(), name).toBe(0);
  return {
    hasText: (await page.locator("body").innerText()).includes(hostileText.visiblePart),
    deceives: await page.evaluate<string[]>(findDeceivingText),
  };
}

/** Opens the tail, and publishes while it is open. */
async function openHostileTail(page: Page, server: ConsoleServer): Promise<void> {
  await openPage(page, server, "/tail");
  await page.getByText("Follows the log").waitFor();
  await publishHostile(server);
  await page.locator(".tail-row").filter({ hasText: hostileText.visiblePart }).first().waitFor();
}

/** The pages that show a string of a sender or of a person, with the way to it. */
const hostilePages = (): ReturnType<typeof listPages> => ({
  ...listPages(),
  ...listDialogs(),
  "tail while it follows": openHostileTail,
  "message with a hostile label": async (page, server) => {
    await openPage(page, server, `/messages?label=${encodeURIComponent(hostileText.value)}`);
    const id = await page.locator("tbody .id").first().getAttribute("title");
    await openPage(page, server, `/messages?open=${id}`);
    await page.locator(".drawer .gates").waitFor();
  },
  "key with a hostile name": async (page, server) => {
    await openPage(page, server, `/keys?open=${encodeURIComponent(hostileText.value)}`);
    await page.getByRole("dialog").waitFor();
  },
  "run with a hostile step": async (page, server) => {
    await openPage(page, server, "/runs/hostile");
    await page.locator(".tl-row").first().waitFor();
  },
  "search for a hostile text": async (page, server) => {
    await openPage(page, server, "/");
    await page.keyboard.press("Control+k");
    await page.getByRole("combobox", { name: "Search or paste an id" }).fill(hostileText.value);
  },
});

const pagesWithIt = [
  "messages",
  "log",
  "message with a hostile label",
  "keys",
  "tail while it follows",
  "replay",
  "key with a hostile name",
  "dead letters",
  "dead letter list",
  "dead letter",
  "run with a hostile step",
  "url groups",
  "sources",
  "tokens",
];

/** Finds texts in which a character hides or turns around its neighbours. It is JavaScript for the page. */
const findDeceivingText = `(() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const { textContent, parentElement } = walker.currentNode;
    // A field cannot mark a character. The hint below it counts them.
    if (parentElement.tagName === "TEXTAREA") continue;
    if (/[\\u200B-\\u200F\\u202A-\\u202E\\u2066-\\u2069]/.test(textContent))
      found.push(parentElement.tagName + "." + parentElement.className + ": " + textContent);
  }
  return found;
})()`;
