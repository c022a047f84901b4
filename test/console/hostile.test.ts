import { expect, test } from "vitest";
import { hostileText } from "./hostile.ts";
import { describeConsole } from "./openConsole.ts";
import { listPages, openPage } from "./pages.ts";
import { seedHostile } from "./seedHostile.ts";

describeConsole(
  "hostile content on every page",
  (open) => {
    test("no page runs or loads it, or shows a character that deceives", async () => {
      const { page, server } = open;
      const shown: string[] = [];
      const deceiving: Record<string, unknown> = {};
      for (const [name, visit] of Object.entries(hostilePages())) {
        await visit(page, server);
        expect(await page.title(), name).not.toContain("owned");
        expect(await page.locator("img, iframe, object, embed, base").count(), name).toBe(0);
        const found = await page.evaluate(findDeceivingText);
        if ((found as string[]).length > 0) deceiving[name] = found;
        if ((await page.locator("body").innerText()).includes(hostileText.visiblePart)) shown.push(name);
      }
      expect(deceiving).toEqual({});
      // A page that does not show the text proves nothing.
      expect(shown).toEqual(expect.arrayContaining(pagesWithIt));
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

/** The pages that show a text of a sender or of a person, with the way to it. */
const hostilePages = (): ReturnType<typeof listPages> => ({
  ...listPages(),
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
    if (/[\\u200B-\\u200F\\u202A-\\u202E\\u2066-\\u2069]/.test(textContent))
      found.push(parentElement.tagName + "." + parentElement.className + ": " + textContent);
  }
  return found;
})()`;
