// @module-tag long
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { expect, onTestFinished, test } from "vitest";
import { freshDatabase } from "../../postgres.ts";
import { developmentToken, runWaypost, startWaypost, temporaryFolder } from "../../server/waypost.ts";
import { connectTo, toOutboxUrl } from "./userDatabase.ts";

const home = join(import.meta.dirname, "../../..");

/** Starts the shop of examples/outbox. Returns its URL. */
async function startShop(databaseUrl: string): Promise<string> {
  const child = spawn(process.execPath, ["scripts/run.js", "examples/outbox/main.ts"], {
    cwd: home,
    env: { PATH: process.env.PATH, DATABASE_URL: databaseUrl, PORT: "0" },
    stdio: ["ignore", "pipe", "inherit"],
  });
  onTestFinished(() => void child.kill());
  const [line] = (await once(createInterface({ input: child.stdout }), "line")) as [string];
  return /http:\S+/.exec(line)?.[0] ?? "";
}

test("the example publishes exactly for the orders that exist, with the commands of the guide", async () => {
  const databaseUrl = await freshDatabase();
  const sql = await connectTo(databaseUrl);
  const folder = temporaryFolder();
  const server = await startWaypost(["dev", "--port", "0", "--data", folder]);
  const run = async (...args: string[]): Promise<string> => {
    const environment = { WAYPOST_URL: server.url, WAYPOST_TOKEN: developmentToken };
    const { code, out, err } = await runWaypost(["outbox", ...args], environment).ended;
    expect({ code, err }).toEqual({ code: 0, err: "" });
    return out;
  };
  await sql.query(await run("sql"));
  const [urlFile, tokenFile] = [join(folder, "url"), join(folder, "token")];
  writeFileSync(urlFile, `${toOutboxUrl(databaseUrl)}\n`);
  writeFileSync(tokenFile, `${developmentToken}\n`);
  const files = ["--database-url-file", urlFile, "--token-file", tokenFile];
  expect(await run("add", "shop", ...files)).toMatch(/^shop {2}\w+\n$/);

  const shop = await startShop(databaseUrl);
  const order = async (item: string) => {
    const response = await fetch(`${shop}/orders`, { method: "POST", body: JSON.stringify({ item }) });
    return { status: response.status, ...((await response.json()) as object) };
  };
  expect(await order("unknown")).toEqual({ status: 409, order: null });
  expect(await order("book")).toEqual({ status: 201, order: 2 });
  expect(await order("book")).toEqual({ status: 409, order: null });
  const listOrders = async () =>
    (await sql.query("select id, mailed_at is not null as mailed from orders order by id")).rows;
  await expect.poll(listOrders).toEqual([{ id: "2", mailed: true }]);
  const { outboxes } = JSON.parse(await run("list", "--json")) as { outboxes: object[] };
  expect(outboxes).toMatchObject([{ name: "shop", taken: 1, rejected: 0 }]);
  expect(await run("take-over", "shop")).toMatch(/^shop/);
  expect(await run("remove", "shop")).toBe("shop was removed\n");
});
