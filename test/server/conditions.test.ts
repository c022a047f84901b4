import { once } from "node:events";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { developmentToken, runWaypost, startDestination, startWaypost, temporaryFolder } from "./waypost.ts";

// The conditions of a real server with real destinations.

type Condition = { kind: string; level: string; subject: string; text: string };

/** Starts a destination that accepts connections and answers nothing. */
async function startSilentDestination(): Promise<string> {
  const server = createServer((socket) => void socket.on("error", () => undefined).resume());
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

test(
  "a host that refuses everything and one that answers nothing are on the overview within 30 seconds",
  { timeout: 90_000 },
  async () => {
    const failing = await startDestination(() => ({ status: 503 }));
    const silent = await startSilentDestination();
    const server = await startWaypost(["dev", "--port", "0", "--data", temporaryFolder()]);
    const headers = { authorization: `Bearer ${developmentToken}` };
    const publish = async (url: string): Promise<void> => {
      const response = await fetch(`${server.url}/v2/publish/${url}`, { method: "POST", headers });
      expect(response.status).toBe(200);
    };
    const startedAt = Date.now();
    for (let at = 0; at < 5; at++) await publish(`${failing.url}/x`);
    for (let at = 0; at < 3; at++) await publish(`http://${silent}/x`);
    const read = async (): Promise<Condition[]> => {
      const response = await fetch(`${server.url}/v2/overview`, { headers });
      return ((await response.json()) as { conditions: Condition[] }).conditions;
    };
    let found = await read();
    while (found.length < 2 && Date.now() - startedAt < 30_000) {
      await pause(500);
      found = await read();
    }
    expect(found).toMatchObject([
      { kind: "host.failing", level: "problem", subject: new URL(failing.url).host },
      { kind: "host.hanging", level: "warning", subject: silent },
    ]);
    expect(found[0]?.text).toMatch(/has accepted nothing for \d+ s: status 503$/);
    expect(found[1]?.text).toMatch(/has answered none of 3 deliveries in flight for \d+ s$/);
    const { out, code } = await runWaypost(["overview"], {
      WAYPOST_URL: server.url,
      WAYPOST_TOKEN: developmentToken,
    }).ended;
    expect(code).toBe(0);
    expect(out).toMatch(/^2 things need attention:\n {2}problem {2}127\.0\.0\.1:\d+ has accepted nothing/);
  },
);
