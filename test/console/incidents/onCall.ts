import type { Locator, Page } from "playwright-core";
import type { ConsoleServer } from "../consoleServer.ts";

/** A destination whose answers a test chooses. */
export type Shop = {
  url: string;
  host: string;
  mode: "ok" | "fail" | "hang";
  accepted: number;
  close(): void;
};

/** The server that has an incident, and the destination of its messages. */
export type World = { server: ConsoleServer; shop: Shop };

/** Where a server of an incident stores its data. `null`: this machine does not have such a place. */
export type Place = { data: string; close(): void } | null;

/** A person on call, who has the console alone. Counts the clicks. */
export class OnCall {
  readonly page: Page;
  clicks = 0;

  constructor(page: Page) {
    this.page = page;
  }

  async click(target: Locator): Promise<void> {
    this.clicks++;
    await target.click();
  }

  /** Clicks a button or a link with this name, below `within` or on the whole page. */
  press(name: string | RegExp, within: Page | Locator = this.page): Promise<void> {
    const exact = typeof name === "string";
    const button = within.getByRole("button", { name, exact });
    return this.click(button.or(within.getByRole("link", { name, exact })).first());
  }

  /** Clicks the button of an open dialog. */
  confirm(name: string | RegExp): Promise<void> {
    return this.press(name, this.page.getByRole("dialog"));
  }

  /** Types into a field, which needs no click. */
  async fill(label: string | RegExp, text: string): Promise<void> {
    await this.page.getByRole("dialog").getByLabel(label).first().fill(text);
  }
}

/** Something that breaks, the row of the overview that tells it, and what repairs it. */
export type Incident = {
  name: string;
  /** Makes the place of the data. Default: a folder with enough room. */
  open?(): Place;
  /** Breaks something. Afterwards, what is not part of the server is repaired by `repair` at its begin. */
  cause(world: World): Promise<void>;
  /** The text of the row of the overview. Null: another page tells it, to which `repair` goes. */
  told: RegExp | null;
  /** Whether nothing needs attention: it works as it was set up. */
  isNote?: true;
  /** The longest time until the overview tells it, in milliseconds. Default: 30 s. */
  within?: number;
  repair(onCall: OnCall, world: World, row: Locator): Promise<void>;
  /** Reports whether everything has healed. */
  healed(world: World): Promise<boolean>;
};
