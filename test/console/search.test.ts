import { expect, test } from "vitest";
import { expectShown, findViolations } from "./measures.ts";
import { describeConsole } from "./openConsole.ts";
import { openPage } from "./pages.ts";
import { call, until } from "./seed.ts";

const label = "Search or paste an id";

describeConsole(
  "the search of the console",
  (open) => {
    const type = async (text: string): Promise<void> => {
      await open.page.keyboard.press("Control+k");
      await open.page.getByRole("combobox", { name: label }).fill(text);
    };

    test("finds text in a body, marks it, and opens the dead letter", async () => {
      await openPage(open.page, open.server, "/");
      await type("iban de44");
      const hit = open.page.getByRole("option", { name: /^Dead letter · body/ });
      await expectShown(hit.locator("mark", { hasText: "IBAN DE44" }));
      await expectShown(open.page.getByText(/^Searched \d+ messages, dead letters and runs$/));
      expect(await findViolations(open.page)).toEqual([]);
      if (process.env["SHOTS"]) await open.page.screenshot({ path: `${process.env["SHOTS"]}/search.png` });
      await open.page.keyboard.press("Enter");
      await open.page.waitForURL(/dead-letters\?open=/);
      await expectShown(open.page.locator(".drawer").getByText("IBAN DE44"));
    });

    test("retries a dead letter from the list of what was found", async () => {
      await openPage(open.page, open.server, "/");
      await type("iban de44");
      await expectShown(open.page.getByRole("option", { name: /^Dead letter · body/, selected: true }));
      await open.page.keyboard.press("Shift+Enter");
      await expectShown(open.page.getByText("The message is published again"));
    });

    test("finds a queue by a part of its name, and a page by its name", async () => {
      await openPage(open.page, open.server, "/");
      await type("arcel");
      await open.page.getByRole("option", { name: /^Queue parcels/ }).click();
      await expectShown(open.page.getByRole("heading", { name: "parcels" }));
      await type("Keys");
      await open.page.getByRole("option", { name: /^Keys/ }).click();
      await expectShown(open.page.getByRole("heading", { name: "Keys" }));
    });

    test("says that nothing was found, and still offers the label", async () => {
      await openPage(open.page, open.server, "/");
      await type("no such text anywhere");
      await expectShown(open.page.getByText(/^Searched \d+ messages, dead letters and runs$/));
      expect(await open.page.getByRole("dialog").getByRole("option").count()).toBe(1);
      await open.page.keyboard.press("Escape");
    });
  },
  {
    fill: async (server) => {
      await call(server, `POST /v2/publish/${server.destinations.url}/500/refund`, {
        headers: { "svc-retries": "0" },
        body: '{"note": "IBAN DE44 5001 0517"}',
      });
      await until("the dead letter", async () => {
        const { found } = (await call(server, "GET /v2/search?query=IBAN%20DE44")) as {
          found: { kind: string }[];
        };
        return found.some(({ kind }) => kind === "deadLetter");
      });
    },
  },
);
