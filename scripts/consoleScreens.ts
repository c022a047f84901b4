// node scripts/run.js scripts/consoleScreens.ts <folder> [page…]: takes screenshots of the pages of the web
// console of a server with every state, in both themes and three widths. With --guide, it takes the pictures
// of the guide: node scripts/run.js scripts/consoleScreens.ts docs/pictures --guide
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { launchBrowser } from "../test/console/chromium.ts";
import { startConsoleServer } from "../test/console/consoleServer.ts";
import { listPages, signIn } from "../test/console/pages.ts";
import { buildConsole } from "./buildConsole.js";
import { drawLabels, guidePictures } from "./consoleLabels.ts";

const widths = [360, 1280, 2560] as const;
const themes = ["light", "dark"] as const;

const [folder = "screens", ...only] = process.argv.slice(2).filter((one) => one !== "--guide");
const isForGuide = process.argv.includes("--guide");
buildConsole();
mkdirSync(folder, { recursive: true });
const browser = await launchBrowser();
if (typeof browser === "string") throw new Error(browser);
const server = await startConsoleServer();
try {
  await takeAll(browser);
} finally {
  await browser.close();
  await server.close();
}

async function takeAll(opened: Browser): Promise<void> {
  const context = await opened.newContext({ viewport: { width: 1280, height: 800 }, locale: "en-US" });
  const page = await context.newPage();
  await signIn(page, server);
  if (isForGuide) return takeGuidePictures(page);
  for (const name of Object.keys(listPages()))
    if (only.length === 0 || only.includes(name))
      for (const theme of themes) for (const width of widths) await takePicture(page, name, { width, theme });
}

type Picture = { width: (typeof widths)[number]; theme: (typeof themes)[number] };

async function takePicture(page: Page, name: string, { width, theme }: Picture): Promise<void> {
  await page.emulateMedia({ colorScheme: theme, reducedMotion: "reduce" });
  await page.setViewportSize({ width, height: width < 640 ? 780 : 900 });
  await listPages()[name]?.(page, server);
  await page.screenshot({ path: join(folder, `${name}-${width}-${theme}.png`), fullPage: true });
}

async function takeGuidePictures(page: Page): Promise<void> {
  await page.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
  for (const { page: name, file, height, labels } of guidePictures) {
    await page.setViewportSize({ width: 1280, height });
    await listPages()[name]?.(page, server);
    // A failed run opens at its failed step.
    await page.evaluate("scrollTo(0, 0)");
    await drawLabels(page, labels);
    await page.screenshot({ path: join(folder, `${file}.png`) });
  }
}
