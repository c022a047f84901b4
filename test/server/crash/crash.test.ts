import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { Agent, request } from "undici";
import { expect, onTestFinished, test } from "vitest";
import { openSqlite } from "../../../src/engine/store/sqlite/database.ts";
import { expectStoredBytesInDatabase } from "../../engine/store/sql/stored.ts";
import { developmentToken, startDestination, startWaypost, temporaryFolder } from "../waypost.ts";

const kills = 6;
const publishers = 16;

/** Publishes until stopped. Records what was acknowledged; a publish without a response promises nothing. */
function publishUnderLoad(urlOf: () => string, destination: string) {
  const acknowledged = new Set<string>();
  const agent = new Agent({ connections: publishers });
  onTestFinished(() => agent.destroy());
  let going = true;
  let count = 0;
  const publisher = async (): Promise<void> => {
    while (going) {
      const name = `m${count++}`;
      try {
        const { statusCode, body } = await request(`${urlOf()}/v2/publish/${destination}/${name}`, {
          method: "POST",
          headers: {
            authorization: `Bearer ${developmentToken}`,
            "svc-retries": "0",
            ...(count % 5 === 0 ? { "svc-delay": "1s" } : {}),
          },
          body: name,
          dispatcher: agent,
        });
        await body.dump();
        if (statusCode === 200) acknowledged.add(name);
      } catch {
        await pause(20);
      }
    }
  };
  const ended = Promise.all(Array.from({ length: publishers }, publisher));
  return {
    acknowledged,
    stop: async () => {
      going = false;
      await ended;
    },
  };
}

test("every acknowledged message arrives, although the server is killed repeatedly", async () => {
  const data = temporaryFolder();
  const destination = await startDestination();
  const start = () => startWaypost(["dev", "--port", "0", "--data", data]);
  let server = await start();
  const load = publishUnderLoad(() => server.url, destination.url);
  for (let kill = 0; kill < kills; kill++) {
    const before = load.acknowledged.size;
    while (load.acknowledged.size < before + 100) await pause(10);
    await pause(Math.random() * 300);
    server.kill("SIGKILL");
    await server.ended;
    server = await start();
  }
  await load.stop();
  const arrived = (): Set<string> => new Set(destination.arrivals.map(({ path }) => path.slice(1)));
  await destination.until(() => load.acknowledged.difference(arrived()).size === 0);
  expect(load.acknowledged.size).toBeGreaterThan(kills * 100);

  // Nothing is left over and nothing failed: every message was delivered.
  const dlq = await request(`${server.url}/v2/dlq`, {
    headers: { authorization: `Bearer ${developmentToken}` },
  });
  expect(await dlq.body.json()).toEqual({ messages: [] });
  server.kill("SIGTERM");
  expect((await server.ended).code).toBe(0);
  const database = openSqlite(join(data, "waypost.db"), { readOnly: true });
  const stored = await expectStoredBytesInDatabase(database.connection);
  database.close();
  expect(Math.max(...Object.values(stored))).toBeGreaterThan(load.acknowledged.size * 100);
});
