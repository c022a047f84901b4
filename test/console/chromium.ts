import { existsSync } from "node:fs";
import { env } from "node:process";
import type { Browser } from "playwright-core";

/**
 * Returns a headless browser, or the reason why there is none. It comes with the dependencies on Linux x64.
 * On other machines, $CHROMIUM or /usr/bin/chromium is used.
 */
export async function launchBrowser(): Promise<Browser | string> {
  const path = await findChromium();
  if (path === null) return "no browser: set CHROMIUM to the path of Chromium or Chrome";
  const { chromium } = await import("playwright-core");
  return chromium.launch({
    executablePath: path,
    headless: true,
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
  });
}

async function findChromium(): Promise<string | null> {
  const given = env["CHROMIUM"] ?? "/usr/bin/chromium";
  if (existsSync(given)) return given;
  if (process.platform !== "linux" || process.arch !== "x64") return null;
  const { default: packaged } = await import("@sparticuz/chromium");
  return packaged.executablePath();
}
