import { expect, test } from "vitest";
import { expectShown, findViolations } from "./measures.ts";
import { describeConsole } from "./openConsole.ts";
import { openPage } from "./pages.ts";
import { call } from "./seed.ts";

describeConsole("the pulled origins", (open) => {
  test("are declared and removed, and lead to the messages that wait", async () => {
    const { page, server } = open;
    const list = () => call(server, "GET /v2/pulled");
    await openPage(page, server, "/settings?part=pulled");
    await page.getByRole("button", { name: "New pulled origin" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Origin").fill("http://worker.internal");
    await dialog.getByRole("button", { name: "Declare origin" }).click();
    await expectShown(dialog.getByText(/both schemes of a host are the same/));
    await dialog.getByLabel("Origin").fill("https://press.internal");
    await dialog.getByRole("button", { name: "Declare origin" }).click();
    const row = page.getByRole("row").filter({ hasText: "https://press.internal" });
    await expectShown(row);
    expect(await findViolations(page)).toEqual([]);
    await call(server, "POST /v2/publish/https://press.internal/labels");
    await row.getByRole("link").click();
    await expectShown(page.getByRole("row").filter({ hasText: "/labels" }));
    await openPage(page, server, "/settings?part=pulled");
    await row.getByRole("button", { name: "Remove" }).click();
    await expectShown(page.getByRole("dialog").getByText(/Waiting messages are then sent/));
    await page.getByRole("dialog").getByRole("button", { name: "Remove origin" }).click();
    await row.waitFor({ state: "detached" });
    expect(await list()).toEqual({ origins: [{ origin: "https://worker.internal" }] });
  });

  test("a token that may receive is made", async () => {
    const { page, server } = open;
    await openPage(page, server, "/settings");
    await page.getByRole("button", { name: "New token" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Name").fill("press");
    await dialog.getByLabel("publish", { exact: true }).uncheck();
    await dialog.getByLabel("receive", { exact: true }).check();
    await dialog.getByLabel("Destinations").fill("https://worker.internal/*");
    await dialog.getByRole("button", { name: "Create token" }).click();
    await expectShown(page.getByText("Token “press” is created"));
    const { tokens } = (await call(server, "GET /v2/tokens")) as {
      tokens: { name: string; verbs: string[] }[];
    };
    expect(tokens.find(({ name }) => name === "press")).toMatchObject({ verbs: ["receive"] });
  });
});
