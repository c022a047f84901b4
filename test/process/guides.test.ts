import { spawn } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { startDestination, startWaypost, temporaryFolder } from "./waypost.ts";

// What the README and the guides tell people to paste is pasted here, and answers as it is printed there.

const home = join(import.meta.dirname, "../..");
const guides = readdirSync(join(home, "docs/guides")).map((name) => `docs/guides/${name}`);

test("the commands of the README do what it says", async () => {
  await expectAsWritten(["README.md"]);
});

test("the commands of the guides do what they say", async () => {
  expect(guides.length).toBeGreaterThan(7);
  await expectAsWritten(guides);
});

/** Pastes the commands of some documents, at the same time, with one server and one receiver for all. */
async function expectAsWritten(names: readonly string[]): Promise<void> {
  const server = await startWaypost(["dev", "--port", "0"]);
  const destination = await startDestination();
  const shop = await startShop(server.url);
  const places: Place[] = [
    [authority(shop), "127.0.0.1:3000"],
    [authority(server.url), "127.0.0.1:8080"],
    [authority(destination.url), "127.0.0.1:4000"],
    // Nobody listens there.
    ["127.0.0.1:1", "127.0.0.1:4001"],
  ];
  await Promise.all(names.map((name) => paste(name, places)));
}

/** The shop of the examples, for the workflows of this server. Answers its URL. */
async function startShop(server: string): Promise<string> {
  const env = { PATH: process.env.PATH, QSTASH_URL: server, PORT: "0" };
  const shop = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", join(home, "examples/orders/main.ts")], { env });
  onTestFinished(() => void shop.kill("SIGKILL"));
  for await (const line of createInterface({ input: shop.stdout })) {
    const [url] = /http:\/\/[\d.:]+/.exec(line) ?? [];
    if (url) return url;
  }
  throw new Error("the shop did not open");
}

async function paste(name: string, places: readonly Place[]): Promise<void> {
  const blocks = blocksOf(readFileSync(join(home, name), "utf8"));
  expect(blocks.length, name).toBeGreaterThan(0);
  const shell = openShell();
  for (const { commands, printed } of blocks) {
    const run = async (): Promise<string> => asDocumented(await shell(asMeant(commands, places)), places);
    let output = await run();
    // What only looks is pasted again until there is something to see, so that a slow machine passes, too.
    for (let turn = 0; turn < 100 && onlyReads(commands) && !isAsPrinted(output, printed); turn++) {
      await pause(50);
      output = await run();
    }
    expect(isAsPrinted(output, printed), `${name}\n${commands}\nprinted:\n${output}\nexpected:\n${printed}`).toBe(true);
    if (printed === "") expect(output, `${name}\n${commands}`).not.toContain('{"error"');
  }
}

type Block = { commands: string; printed: string };

/** The commands of a document, each block with what it says that they print. Those that start a server or a receiver are left out. */
function blocksOf(text: string): Block[] {
  const found = text.matchAll(/^```sh\n(.*?)^```\n(?:\n```json\n(.*?)^```\n)?/gms);
  return [...found].map(([, commands = "", printed = ""]) => ({ commands, printed })).filter(({ commands }) => !/\bnp[mx] /.test(commands));
}

/** Where something is here, and where the document says it is. */
type Place = readonly [here: string, written: string];

const authority = (url: string): string => new URL(url).host;
/** A port is not the beginning of another one. */
const replaced = (text: string, from: string, to: string): string =>
  text.replaceAll(new RegExp(`${from.replaceAll(".", "\\.")}(?!\\d)`, "g"), () => to);
const asMeant = (text: string, places: readonly Place[]): string =>
  places.reduce((so, [here, written]) => replaced(so, written, here), text);
const asDocumented = (text: string, places: readonly Place[]): string =>
  places.reduce((so, [here, written]) => replaced(so, here, written), text);

const onlyReads = (commands: string): boolean => !/ (-X|-d) /.test(commands);

/** Whether an output is what was printed; `…` stands for anything, and spaces for nothing. */
function isAsPrinted(output: string, printed: string): boolean {
  const [first = "", ...others] = printed.replaceAll(/\s/g, "").split("…");
  const text = output.replaceAll(/\s/g, "");
  if (!text.startsWith(first)) return false;
  let at = first.length;
  for (const part of others) {
    const place = text.indexOf(part, at);
    if (place < 0) return false;
    at = place + part.length;
  }
  return printed === "" || others.at(-1) === "" || at === text.length;
}

/** A shell that stays open, as that of somebody who pastes one block after another. Answers what each prints. */
function openShell(): (commands: string) => Promise<string> {
  const shell = spawn("bash", [], { cwd: temporaryFolder(), env: { PATH: process.env.PATH }, stdio: ["pipe", "pipe", "ignore"] });
  onTestFinished(() => void shell.kill("SIGKILL"));
  const lines = createInterface({ input: shell.stdout })[Symbol.asyncIterator]();
  return async (commands) => {
    shell.stdin.write(`${commands}\nprintf '\\n%s\\n' "$((6 * 7)) is the end"\n`);
    let output = "";
    for (;;) {
      const { done, value } = await lines.next();
      if (done === true) throw new Error(`the shell ended in\n${commands}`);
      if (value === "42 is the end") return output;
      output += `${value}\n`;
    }
  };
}
