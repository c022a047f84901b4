// @module-tag long
import { setTimeout as pause } from "node:timers/promises";
import { Agent, request } from "undici";
import { expect, onTestFinished, test } from "vitest";
import { startCpuClock } from "../../../bench/processFigures.ts";
import { developmentToken, startWaypost } from "../waypost.ts";

// `npm run trial:pullers` runs this with 1,000 clients for a minute, and prints the result.

const origin = "https://worker.internal";
const clients = Number(process.env["TEST_PULLERS"] ?? 100);
const seconds = Number(process.env["TEST_PULLERS_SECONDS"] ?? 3);

/** The largest share of a core that a client may cost: 1,000 clients cost at most 1 %. Here with a margin. */
const mostPerClient = 0.05 / 1_000;

test.runIf(process.platform === "linux")(
  "clients that wait cost nearly nothing, and each of them gets a message",
  { timeout: 120_000 + 4 * seconds * 1_000 },
  async () => {
    const server = await startWaypost(["dev", "--port", "0"]);
    const agent = new Agent({ connections: clients + 10, headersTimeout: 120_000 });
    onTestFinished(() => agent.destroy());
    const ask = async (method: "POST" | "PUT", path: string, body: object) => {
      const response = await request(`${server.url}${path}`, {
        ...{ method, dispatcher: agent, body: JSON.stringify(body) },
        headers: { authorization: `Bearer ${developmentToken}` },
      });
      expect(response.statusCode).toBe(200);
      return (await response.body.json()) as Record<string, unknown>;
    };
    const measure = async (): Promise<number> => {
      const cpu = startCpuClock(server.pid);
      await pause(seconds * 1_000);
      return cpu() / (seconds * 1e6);
    };
    await ask("PUT", "/v2/pulled", { origin });
    await pause(2_000);
    const idle = await measure();
    const got: string[] = [];
    const work = async (): Promise<void> => {
      for (;;) {
        const { attempts } = await ask("POST", "/v2/pull", { origin, wait: "60s" });
        const [first] = attempts as { messageId: string }[];
        if (first) return void got.push(first.messageId);
      }
    };
    const working: Promise<void>[] = [];
    for (let at = 0; at < clients; at++) {
      working.push(work());
      // They begin one after another, and so they also repeat their pulls one after another.
      await pause(Math.min(20, 60_000 / clients));
    }
    await pause(2_000);
    const waiting = await measure();
    const percent = (share: number): string => `${(share * 100).toFixed(2)} %`;
    process.stdout.write(
      `${clients} clients that wait: ${percent(waiting)} of a core, and none: ${percent(idle)}\n`,
    );
    const urls = working.map((_, at) => ({ destination: `${origin}/${at}` }));
    for (let at = 0; at < urls.length; at += 100) await ask("POST", "/v2/batch", urls.slice(at, at + 100));
    await Promise.all(working);
    expect(new Set(got).size).toBe(clients);
    expect(waiting - idle).toBeLessThan(Math.max(0.02, clients * mostPerClient));
  },
);
