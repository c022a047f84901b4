import type { Browser, BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { buildConsole } from "../../scripts/buildConsole.js";
import { launchBrowser } from "./chromium.ts";
import type { ConsoleServer } from "./consoleServer.ts";
import { startConsoleServer } from "./consoleServer.ts";
import { signIn } from "./pages.ts";

const found = await launchBrowser();
if (typeof found === "string") process.stderr.write(`the tests of the console are skipped: ${found}\n`);

/** A browser that is signed in to a server. The parts are there once the tests begin. */
export type OpenConsole = {
  server: ConsoleServer;
  page: Page;
  /** Errors of scripts and violations of the Content-Security-Policy that the page has reported. */
  reports: string[];
  newContext(): Promise<BrowserContext>;
};

type Settings = {
  /** Fills the server after the seed. */
  fill?: (server: ConsoleServer) => Promise<void>;
  /** Whether the server starts without the seed. */
  isEmpty?: boolean;
  tags?: string[];
};

/**
 * Describes tests with a real server and a browser, or skips them if there is no browser. At the end, no
 * script may have failed, and no CSP report may have come.
 */
export function describeConsole(
  name: string,
  define: (open: OpenConsole) => void,
  { fill, isEmpty = false, tags = [] }: Settings = {},
): void {
  // oxlint-disable-next-line vitest/valid-title -- each file gives its own
  describe.skipIf(typeof found === "string")(name, { tags }, () => {
    // Files of one worker share this module, and each closes its browser.
    let browser = found as Browser;
    const newContext = async (): Promise<BrowserContext> => {
      const made = await browser.newContext({
        viewport: { width: 1280, height: 900 },
        locale: "en-US",
        reducedMotion: "reduce",
      });
      // A page takes a second on an idle machine.
      made.setDefaultTimeout(120_000);
      return made;
    };
    const open = { reports: [] as string[], newContext } as OpenConsole;
    beforeAll(async () => {
      buildConsole();
      if (!browser.isConnected()) browser = (await launchBrowser()) as Browser;
      open.server = await startConsoleServer({ isEmpty });
      await fill?.(open.server);
      open.page = await (await newContext()).newPage();
      open.page.on("pageerror", (error) => open.reports.push(error.message));
      open.page.on("console", (message) => message.type() === "error" && open.reports.push(message.text()));
      open.page.on("dialog", (dialog) => open.reports.push(`a dialog: ${dialog.message()}`));
      await signIn(open.page, open.server);
    });
    afterAll(async () => {
      await browser.close();
      await open.server.close();
    });
    define(open);
    test("no script failed and no CSP report came on any page", () => {
      // The browser reports each refused request as an error; these are the ones that the tests cause.
      expect(open.reports.filter((text) => !/status of (401|404|409)/.test(text))).toEqual([]);
    });
  });
}
