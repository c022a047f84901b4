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
  host: (page, server) =>
    openPage(page, server, `/hosts/${encodeURIComponent(new URL(server.destinations.url).host)}`),
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
  "not published": at("/not-published"),
  outboxes: at("/outboxes"),
  events: at("/events"),
  publish: at("/publish"),
  tail: at("/tail"),
  jobs: at("/jobs"),
  tokens: at("/settings"),
  "signing keys": at("/settings?part=keys"),
  "pulled origins": at("/settings?part=pulled"),
  alerts: at("/settings?part=alerts"),
  limits: at("/settings?part=limits"),
  usage: at("/settings?part=usage"),
  audit: at("/settings?part=audit"),
});

/** Dialogs and other parts that open above a page, by name, with the way to each. They need all rights. */
export const listDialogs = (): Record<string, Opener> => ({
  replay: async (page, server) => {
    await listPages()["dead letter"]?.(page, server);
    await page.getByRole("button", { name: "Change and retry" }).click();
    await page.getByRole("dialog").waitFor();
  },
  "bulk action": async (page, server) => {
    await openPage(page, server, "/dead-letters");
    await page.getByRole("button", { name: "Act on all" }).click();
    await page.locator(".bulk .plan").waitFor();
  },
  "group of dead letters": async (page, server) => {
    await openPage(page, server, "/dead-letters");
    await page.locator(".expander").first().click();
    await page.locator("tbody .id").first().waitFor();
  },
  "new queue": dialogAt("/queues", "New queue"),
  "delete a queue": dialogAt("/queues/parcels", "Delete queue parcels"),
  "new source": dialogAt("/sources", "New source"),
  "new group": dialogAt("/url-groups", "New group"),
  "new token": dialogAt("/settings", "New token"),
  "new pulled origin": dialogAt("/settings?part=pulled", "New pulled origin"),
  account: dialogAt("/queues", "defaultUser"),
  key: async (page, server) => {
    await openPage(page, server, "/keys?open=crm");
    await page.getByRole("dialog").waitFor();
  },
  filter: async (page, server) => {
    await openPage(page, server, "/messages");
    await page.getByRole("button", { name: "Filter", exact: true }).click();
    await page.locator("form.pop").waitFor();
  },
  help: async (page, server) => {
    await openPage(page, server, "/queues");
    await page.keyboard.press("?");
    await page.getByRole("dialog", { name: "Keys" }).waitFor();
  },
  search: async (page, server) => {
    await openPage(page, server, "/queues");
    await page.keyboard.press("Control+k");
    await page.getByRole("combobox", { name: "Search or paste an id" }).waitFor();
  },
});

/** Opens a dialog by its button on a page. In a narrow window, the button may be in the menu. */
const dialogAt =
  (path: string, button: string): Opener =>
  async (page, server) => {
    await openPage(page, server, path);
    const opens = page.getByRole("button", { name: button });
    if (!(await opens.isVisible())) await page.getByRole("button", { name: "Menu" }).click();
    await opens.click();
    await page.getByRole("dialog").waitFor();
  };
