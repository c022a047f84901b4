import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { env } from "node:process";
import type { Browser } from "playwright-core";

const home = join(import.meta.dirname, "../..");

/**
 * Returns a headless browser, or the reason why there is none. It comes with the dependencies on Linux x64.
 * On other machines, $CHROMIUM or /usr/bin/chromium is used. `more` are further arguments of the browser.
 */
export async function launchBrowser(more: readonly string[] = []): Promise<Browser | string> {
  const path = await findChromium();
  if (path === null) return "no browser: set CHROMIUM to the path of Chromium or Chrome";
  const { chromium } = await import("playwright-core");
  return chromium.launch({
    executablePath: path,
    headless: true,
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", ...more],
    timeout: 300_000,
  });
}

async function findChromium(): Promise<string | null> {
  const given = env["CHROMIUM"] ?? "/usr/bin/chromium";
  if (existsSync(given)) return given;
  if (process.platform !== "linux" || process.arch !== "x64") return null;
  return unpackChromium();
}

/**
 * Returns the path of the browser of the dependencies, which is unpacked once. Several test files may do this
 * at the same time. The package alone would return a path to a file that another process still writes.
 */
async function unpackChromium(): Promise<string> {
  const packageFile = readFileSync(join(home, "node_modules/@sparticuz/chromium/package.json"), "utf8");
  const { version } = JSON.parse(packageFile) as { version: string };
  const cache = join(home, "node_modules/.cache");
  const folder = join(cache, `chromium-${version}`);
  if (!existsSync(folder)) {
    mkdirSync(cache, { recursive: true });
    const own = mkdtempSync(`${folder}-`);
    await inFolder(own, async () => {
      const { default: packaged } = await import("@sparticuz/chromium");
      await packaged.executablePath();
    });
    try {
      renameSync(own, folder);
    } catch (error) {
      // Another process was faster.
      if (!existsSync(folder)) throw error;
      rmSync(own, { recursive: true });
    }
  }
  return join(folder, "chromium");
}

/** Runs something with a folder for temporary files, to which the package unpacks. */
async function inFolder(folder: string, run: () => Promise<void>): Promise<void> {
  const before = env["TMPDIR"];
  env["TMPDIR"] = folder;
  try {
    await run();
  } finally {
    if (before === undefined) delete env["TMPDIR"];
    else env["TMPDIR"] = before;
  }
}
