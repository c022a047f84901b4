// @module-tag long
import { setTimeout as pause } from "node:timers/promises";
import { Agent, request } from "undici";
import { expect, onTestFinished, test } from "vitest";
import { startCpuClock } from "../../../bench/processFigures.ts";
import { limits } from "../../../src/engine/core/values/limits.ts";
import { startPostgres } from "../../postgres.ts";
import { startWaypost } from "../waypost.ts";

// Two nodes on one database. Clients wait on one of them, each for its own origin, while the other one sends
// messages. `npm run trial:pullers` runs this with 1,000 clients, and prints the result.

const clients = Number(process.env["TEST_PULLERS"] ?? 100);
const seconds = Number(process.env["TEST_PULLERS_SECONDS"] ?? 3);
const operatorPassword = "a long password of the operator";

test.runIf(process.platform === "linux")(
  "clients that wait for many origins cost little while another node is busy, and each gets its message",
  { timeout: 120_000 + 4 * seconds * 1_000 },
  async () => {
    const postgres = await startPostgres();
    onTestFinished(() => postgres.kill());
    const start = () =>
      startWaypost(
        ["start", "--port", "0", "--database-url", postgres.url, "--egress-allow", "127.0.0.0/8"],
        {
          WAYPOST_OPERATOR_PASSWORD: operatorPassword,
        },
      );
    const busy = await start();
    const waiting = await start();
    const agent = new Agent({ connections: clients + 10, headersTimeout: 120_000 });
    onTestFinished(() => agent.destroy());
    const ask = async (url: string, body: object, authorization: string) => {
      const response = await request(url, {
        ...{
          method: url.endsWith("/v2/pulled") ? "PUT" : "POST",
          dispatcher: agent,
          body: JSON.stringify(body),
          headers: { authorization },
        },
      });
      expect(response.statusCode).toBeLessThan(300);
      return (await response.body.json()) as Record<string, unknown>;
    };
    const operator = `Basic ${Buffer.from(`operator:${operatorPassword}`).toString("base64")}`;
    const workers: { origin: string; token: string }[] = [];
    for (let account = 0; account * limits.pulledOrigins < clients; account++) {
      const made = await ask(`${busy.url}/v2/admin/accounts`, { name: `shop-${account}` }, operator);
      const token = `Bearer ${String(made["token"])}`;
      const first = account * limits.pulledOrigins;
      for (let at = first; at < Math.min(first + limits.pulledOrigins, clients); at++) {
        workers.push({ origin: `https://worker-${at}.internal`, token });
        await ask(`${busy.url}/v2/pulled`, { origin: `https://worker-${at}.internal` }, token);
      }
    }

    // Each of these messages fails, and is due again a second later, so the other node gets signals.
    let isOver = false;
    const traffic = (async () => {
      const { token } = workers[0] ?? { token: "" };
      for (; !isOver; await pause(100))
        await request(`${busy.url}/v2/publish/http://127.0.0.1:1/`, {
          ...{ method: "POST", dispatcher: agent },
          headers: { authorization: token, "svc-retries": "2", "svc-retry-delay": "1000" },
        }).then(({ body }) => body.dump());
    })();
    const measure = async (): Promise<number> => {
      const cpu = startCpuClock(waiting.pid);
      await pause(seconds * 1_000);
      return cpu() / (seconds * 1e6);
    };
    await pause(5_000);
    const without = await measure();
    const got: string[] = [];
    const work = async ({ origin, token }: (typeof workers)[number]): Promise<void> => {
      for (;;) {
        const { attempts } = await ask(`${waiting.url}/v2/pull`, { origin, wait: "60s" }, token);
        const [first] = attempts as { url: string }[];
        if (first) return void got.push(first.url);
      }
    };
    const working: Promise<void>[] = [];
    for (const worker of workers) {
      working.push(work(worker));
      await pause(Math.min(20, 60_000 / clients));
    }
    await pause(2_000);
    const whileWaiting = await measure();
    isOver = true;
    await traffic;
    const percent = (share: number): string => `${(share * 100).toFixed(2)} %`;
    process.stdout.write(
      `${clients} clients that wait for ${clients} origins, on a node beside a busy one: ` +
        `${percent(whileWaiting)} of a core, and none: ${percent(without)}\n`,
    );
    for (const { origin, token } of workers)
      await ask(`${busy.url}/v2/publish/${origin}/work`, { origin }, token);
    await Promise.all(working);
    expect(got.toSorted()).toEqual(workers.map(({ origin }) => `${origin}/work`).toSorted());
  },
);
