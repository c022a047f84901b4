// @module-tag long
import { once } from "node:events";
import { createServer } from "node:http";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as pause } from "node:timers/promises";
import { request } from "undici";
import { expect, onTestFinished, test } from "vitest";
import { developmentToken, runWaypost, startWaypost, temporaryFolder } from "../waypost.ts";

const most = 3;
const kills = 1;
const portion = 120;

/** A destination that counts the concurrent calls of the current server process. */
async function startCounting(lifeNow: () => number) {
  const running = new Map<number, number>();
  const arrived = new Set<string>();
  let highest = 0;
  const server = createServer(async (incoming, response) => {
    const life = lifeNow();
    arrived.add(String(incoming.headers["svc-message-id"]));
    running.set(life, (running.get(life) ?? 0) + 1);
    highest = Math.max(highest, running.get(life) ?? 0);
    incoming.resume();
    await pause(Math.random() * 10);
    running.set(life, (running.get(life) ?? 0) - 1);
    response.writeHead(Math.random() < 0.05 ? 500 : 200, { "retry-after": "0" }).end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void (server.closeAllConnections(), server.close()));
  const address = server.address();
  return {
    url: `http://localhost:${typeof address === "object" ? address?.port : 0}`,
    arrived,
    highest: () => highest,
  };
}

test.each(["global-parallelism", "parallelism"])(
  "an account never exceeds its --%s and loses no place, although the server is killed",
  async (flag) => {
    const data = temporaryFolder();
    let life = 0;
    const destination = await startCounting(() => life);
    const start = () => startWaypost(["dev", "--port", "0", "--data", data]);
    let server = await start();
    const limits = ["account", "limits", "defaultUser", `--${flag}`, String(most), "--data", data];
    expect(await runWaypost(limits).ended).toMatchObject({
      code: 0,
      out: expect.stringContaining(`${flag}: ${most}  (its own)`),
    });
    const acknowledged = new Set<string>();
    const publish = async (number: number): Promise<void> => {
      const key: Record<string, string> = {
        "svc-flow-control-key": "k",
        "svc-flow-control-value": "parallelism=2",
      };
      const headers = {
        authorization: `Bearer ${developmentToken}`,
        "svc-retries": "1000",
        ...(number % 2 === 0 ? key : {}),
      };
      const answer = await request(`${server.url}/v2/publish/${destination.url}/hook?number=${number}`, {
        method: "POST",
        headers,
      });
      acknowledged.add(((await answer.body.json()) as { messageId: string }).messageId);
    };
    for (let kill = 0; kill <= kills; kill++) {
      const enough = acknowledged.size + portion / 2;
      const published = Promise.allSettled(Array.from({ length: portion }, (_, at) => publish(at)));
      while (acknowledged.size < enough) await pause(5);
      if (kill === kills) break;
      server.kill("SIGKILL");
      await Promise.all([server.ended, published]);
      life++;
      server = await start();
    }
    const left = (): unknown => {
      const database = new DatabaseSync(join(data, "waypost.db"), { readOnly: true });
      const [row] = database
        .prepare(
          "select (select count(*) from messages) as messages, " +
            "sum(running + waiting) as counted from limiters",
        )
        .all();
      database.close();
      return { ...row };
    };
    while (
      acknowledged.difference(destination.arrived).size > 0 ||
      JSON.stringify(left()) !== '{"messages":0,"counted":0}'
    )
      await pause(50);
    expect(destination.highest()).toBe(most);
    expect(acknowledged.size).toBeGreaterThanOrEqual((kills + 1) * (portion / 2));
  },
);
