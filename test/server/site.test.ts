import { expect, onTestFinished, test } from "vitest";
import { buildSite, sitePackFile } from "../../scripts/buildSite.ts";
import { openPackFile } from "../../src/server/site/sitePack.ts";
import { groups } from "../../site/navigation.ts";
import { createTestServer, portOf } from "../api/testServer.ts";
import { launchBrowser } from "../console/chromium.ts";

test(
  "the documentation works in a browser without anything that its policy forbids",
  { tags: "long" },
  async ({ skip }) => {
    buildSite();
    const { api } = await createTestServer({ site: openPackFile(sitePackFile) });
    const url = `http://127.0.0.1:${await portOf(api)}/docs`;
    const browser = await launchBrowser();
    if (typeof browser === "string") return skip(browser);
    onTestFinished(() => browser.close());
    const page = await browser.newPage({ colorScheme: "dark" });
    const problems: string[] = [];
    page.on("console", (line) => line.type() === "error" && problems.push(line.text()));
    page.on("pageerror", (error) => problems.push(error.message));
    page.on("request", (request) => !request.url().startsWith(url) && problems.push(request.url()));
    page.on("response", (response) => response.status() >= 400 && problems.push(response.url()));

    await page.goto(`${url}/`);
    await page.getByRole("link", { name: "Flow control" }).first().click();
    await page.getByRole("heading", { level: 1, name: "Flow control" }).waitFor();
    expect(page.url()).toBe(`${url}/guides/flow-control`);
    await page.getByRole("switch").first().click();
    expect(await page.evaluate("document.documentElement.classList.contains('dark')")).toBe(false);
    await page.keyboard.press("Control+k");
    await page.locator(".VPLocalSearchBox input").fill("dead letter");
    await page.locator(".VPLocalSearchBox a.result", { hasText: "Replay a dead letter" }).first().click();
    await page.getByRole("heading", { level: 1, name: "Dead letters" }).waitFor();

    const links = await page
      .locator("aside.VPSidebar a")
      .evaluateAll((all) => all.map((link) => String(link)));
    expect(links.length).toBeGreaterThan(groups.length);
    for (const link of links) {
      await page.goto(link);
      await page.getByRole("heading", { level: 1 }).first().waitFor();
    }
    expect(problems).toEqual([]);
  },
);
