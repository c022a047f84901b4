import type { Page } from "playwright-core";
import type { ConsoleServer } from "./consoleServer.ts";

/** Signs in with the address that the server has printed. Works once for each server. */
export async function signIn(page: Page, server: ConsoleServer): Promise<void> {
  await page.goto(server.signIn);
  await page.locator("nav.side").waitFor({ state: "attached" });
}

/** Opens a page and waits until everything on it has been read. */
export async function openPage(page: Page, server: ConsoleServer, path: string): Promise<void> {
  await page.goto(`${server.url}/console${path}`);
  await page.locator("main.page").waitFor();
  await settled(page);
}

/** Waits until nothing on the page is being loaded. */
async function settled(page: Page): Promise<void> {
  await page.locator("[aria-busy=true]").first().waitFor({ state: "detached" });
}

type Opener = (page: Page, server: ConsoleServer) => Promise<void>;
const at =
  (path: string): Opener =>
  (page, server) =>
    openPage(page, server, path);

/** Every page of the console, by name, with the way to it. */
export const listPages = (): Record<string, Opener> => ({
  overview: at("/"),
  messages: at("/messages"),
  message: async (page, server) => {
    await openPage(page, server, "/messages?state=held");
    const id = await page.locator("tbody .id").first().getAttribute("title");
    await openPage(page, server, `/messages?open=${id}`);
    await page.locator(".drawer .gates").waitFor();
    await settled(page);
  },
  log: at("/messages?view=log"),
  queues: at("/queues"),
  queue: at("/queues/parcels"),
  keys: at("/keys"),
  key: async (page, server) => {
    await openPage(page, server, "/keys?open=crm");
    await page.getByRole("heading", { name: /^Slots in use/ }).waitFor();
  },
  hosts: at("/hosts"),
  "dead letters": at("/dead-letters"),
  "dead letter list": at("/dead-letters?view=list"),
  "dead letter": async (page, server) => {
    await openPage(page, server, "/dead-letters?view=list&label=hostile");
    const id = await page.locator("tbody .id").first().getAttribute("title");
    await openPage(page, server, `/dead-letters?open=${id}`);
    await page.locator(".drawer .payload").first().waitFor();
  },
  runs: at("/runs"),
  run: at("/runs/order-48213"),
  "failed runs": at("/failed-runs"),
  schedules: at("/schedules"),
  "url groups": at("/url-groups"),
  schedule: at("/schedules?open=morning-report"),
  sources: at("/sources"),
  events: at("/events"),
  publish: at("/publish"),
  tail: at("/tail"),
  jobs: at("/jobs"),
  tokens: at("/settings"),
  "signing keys": at("/settings?part=keys"),
  alerts: at("/settings?part=alerts"),
  limits: at("/settings?part=limits"),
  usage: at("/settings?part=usage"),
  audit: at("/settings?part=audit"),
});
