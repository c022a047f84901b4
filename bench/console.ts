/** How fast does the web console respond with a million unfinished messages in the store? */
import { readFileSync } from "node:fs";
import { loadavg } from "node:os";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { buildConsole } from "../scripts/buildConsole.js";
import { launchBrowser } from "../test/console/chromium.ts";
import type { BenchResources } from "./benchResources.ts";
import { formatSummary, formatTable, summarize } from "./figures.ts";
import { openOnSqlite } from "./lists.ts";
import { question } from "./question.ts";
import { pause } from "./server.ts";

const options = {
  messages: { default: 1_000_000, help: "unfinished messages" },
  "dead-letters": { default: 100_000, help: "dead letters" },
  "log-rows": { default: 1_200_000, help: "rows of the log" },
  runs: { default: 10_000, help: "runs: three in four have failed, one in four waits" },
  rounds: { default: 3, help: "how often each page is opened" },
  keys: { default: 40, help: "keys that move the cursor of a list, for each page" },
} as const;

/**
 * The figures of one page, as the browser measured them. `first`: milliseconds from the address until the
 * first rows are shown, once for each round. `presses`: keys and presses. `inputs`: the milliseconds from
 * input to paint of those that took 16 ms or more; the browser does not report the others. `shift`: the
 * layout shift.
 */
type PageFigures = { page: string; first: number[]; presses: number; inputs: number[]; shift: number };

/** The pages with a list, and what shows that its rows are there. */
const pages: readonly { page: string; path: string; shown: string }[] = [
  { page: "overview", path: "/", shown: ".figures, .grid .panel" },
  { page: "messages", path: "/messages", shown: "tbody tr" },
  { page: "messages with a label", path: "/messages?label=common", shown: "tbody tr" },
  { page: "log", path: "/messages?view=log", shown: "tbody tr" },
  { page: "dead letters", path: "/dead-letters?view=list", shown: "tbody tr" },
  { page: "runs", path: "/runs", shown: "tbody tr" },
  { page: "failed runs", path: "/failed-runs", shown: ".panel .group-row, tbody tr" },
];

/** The benchmark of the console. */
export const consolePages = question({
  asks: "time from input to paint, layout shift and first rows of the web console with a million messages",
  options,
  async find(given, resources) {
    const counts = {
      messages: given.messages,
      deadLetters: given["dead-letters"],
      logRows: given["log-rows"],
      runs: given.runs,
    };
    buildConsole();
    const { server } = await openOnSqlite(resources, counts);
    const browser = await launchBrowser();
    if (typeof browser === "string") throw new Error(browser);
    try {
      const page = await signIn(browser, await readAddress(resources, server.port));
      const found: PageFigures[] = [];
      const before = loadavg()[0] ?? Number.NaN;
      for (const one of pages) {
        found.push(await measure(page, `http://127.0.0.1:${server.port}/console`, { ...one, ...given }));
        console.error(formatRow(found.at(-1) as PageFigures).join("  "));
      }
      const load = [before, loadavg()[0] ?? Number.NaN];
      return { figures: { load, pages: found }, text: report(found, load) };
    } finally {
      await browser.close();
      await server.stop();
    }
  },
});

/** Returns the address that the server has printed, which signs in once. */
async function readAddress(resources: BenchResources, port: number): Promise<string> {
  for (let attempt = 0; attempt < 100; attempt++) {
    const output = readFileSync(join(resources.folder("sqlite"), `output-${port}.txt`), "utf8");
    const address = /^console at (\S+)/m.exec(output)?.[1];
    if (address !== undefined) return address;
    await pause(100);
  }
  throw new Error("the server did not print the address of the console");
}

async function signIn(browser: Browser, address: string): Promise<Page> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, locale: "en-US" });
  context.setDefaultTimeout(60_000);
  const page = await context.newPage();
  await page.addInitScript({ content: record });
  await page.goto(address);
  await page.locator("nav.side").waitFor({ state: "attached" });
  return page;
}

/** Records inputs and layout shifts. It is plain JavaScript for the page. An input has several events. */
const record = `
  globalThis.inputs = {};
  globalThis.shift = 0;
  new PerformanceObserver((list) => {
    for (const { interactionId: id, duration } of list.getEntries())
      if (id) globalThis.inputs[id] = Math.max(globalThis.inputs[id] ?? 0, duration);
  }).observe({ type: "event", durationThreshold: 16, buffered: true });
  new PerformanceObserver((list) => {
    for (const { hadRecentInput, value } of list.getEntries()) if (!hadRecentInput) globalThis.shift += value;
  }).observe({ type: "layout-shift", buffered: true });
`;

type Asked = { page: string; path: string; shown: string; rounds: number; keys: number };

async function measure(page: Page, base: string, asked: Asked): Promise<PageFigures> {
  const { path, shown, rounds, keys } = asked;
  const figures: PageFigures = { page: asked.page, first: [], presses: 0, inputs: [], shift: 0 };
  for (let round = 0; round < rounds; round++) {
    await page.goto("about:blank");
    const startedAt = performance.now();
    await page.goto(`${base}${path}`, { waitUntil: "commit" });
    await page.locator(shown).first().waitFor();
    figures.first.push(performance.now() - startedAt);
    await page.locator("[aria-busy=true]").first().waitFor({ state: "detached" });
    figures.presses += await use(page, keys);
    // The browser reports an input after its paint, and the page reads its list again every 5 s.
    await pause(6_000);
    const { inputs, shift } = (await page.evaluate(
      "({ inputs: Object.values(globalThis.inputs), shift: globalThis.shift })",
    )) as { inputs: number[]; shift: number };
    figures.inputs.push(...inputs);
    figures.shift = Math.max(figures.shift, shift);
  }
  return figures;
}

/** Moves the cursor, opens rows and goes to the next page, if it has them. Returns the number of inputs. */
async function use(page: Page, keys: number): Promise<number> {
  let presses = 0;
  const press = async (key: string): Promise<void> => {
    await page.keyboard.press(key);
    presses++;
  };
  for (let at = 0; at < keys; at++) await press(at % 4 === 3 ? "k" : "j");
  for (let at = 0; at < 3 && (await page.locator("tbody tr").count()) > 0; at++) {
    await press("j");
    await press("Enter");
    await pause(500);
    await press("Escape");
    await pause(200);
  }
  const next = page.getByRole("button", { name: "Next", exact: true });
  for (let at = 0; at < 2 && (await next.isVisible()); at++) {
    await next.click();
    presses++;
    await pause(500);
  }
  return presses;
}

/** Returns the 75th percentile of all inputs, of which the browser reports only the slow ones. */
function findP75({ inputs, presses }: Pick<PageFigures, "inputs" | "presses">): string {
  const quick = Array.from({ length: Math.max(0, presses - inputs.length) }, () => 0);
  const all = [...quick, ...inputs].toSorted((one, other) => one - other);
  const p75 = all[Math.max(0, Math.ceil(all.length * 0.75) - 1)] ?? 0;
  return p75 < 16 ? "< 16" : String(p75);
}

const formatRow = (found: PageFigures): string[] => [
  found.page,
  formatSummary(summarize(found.first), 0),
  String(found.presses),
  findP75(found),
  found.inputs.length === 0 ? "< 16" : String(Math.max(...found.inputs)),
  found.shift.toFixed(3),
];

function report(found: readonly PageFigures[], load: readonly number[]): string {
  const all = {
    presses: found.reduce((sum, { presses }) => sum + presses, 0),
    inputs: found.flatMap(({ inputs }) => inputs),
  };
  return [
    `all pages: input to paint p75 ${findP75(all)} ms, of ${all.presses} inputs`,
    `load of the machine before and after: ${load.map((one) => one.toFixed(1)).join(", ")}`,
    "",
    formatTable([["", "first rows ms", "inputs", "p75 ms", "slowest ms", "CLS"], ...found.map(formatRow)]),
  ].join("\n");
}
