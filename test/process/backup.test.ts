import { copyFileSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { request } from "undici";
import { expect, test } from "vitest";
import { startDeliveryChecker } from "./deliveryChecker.ts";
import { developmentToken, startWaypost, temporaryFolder } from "./waypost.ts";

test(
  "a copy that is taken while the server works, as the guide says, is a store from which another one goes on",
  { timeout: 90_000 },
  async () => {
    const data = temporaryFolder();
    const copy = temporaryFolder();
    const judge = await startDeliveryChecker();
    const server = await startWaypost(["dev", "--port", "0", "--data", data]);
    const publish = async (name: string, headers: Record<string, string> = {}): Promise<void> => {
      const options = { method: "POST", headers: { authorization: `Bearer ${developmentToken}`, ...headers }, body: "x" } as const;
      const answer = await request(`${server.url}/v2/publish/${judge.url}/${name}`, options);
      await answer.body.dump();
    };
    const delayed = Array.from({ length: 30 }, (_, index) => `delayed-${index}`);
    await Promise.all(delayed.map((name) => publish(name, { "svc-delay": "1h" })));
    let going = true;
    const load = (async () => {
      while (going) await publish("more");
    })();
    while (judge.calls.length < 50) await pause(5);
    const database = new DatabaseSync(join(data, "waypost.db"), { readOnly: true });
    database.exec(`vacuum into '${join(copy, "waypost.db")}'`);
    database.close();
    // They are kept apart from the copies of the data, and put beside them again.
    copyFileSync(join(data, "keys"), join(copy, "keys"));
    const during = judge.calls.length;
    while (judge.calls.length < during + 50) await pause(5);
    going = false;
    await load;
    server.kill("SIGKILL");
    await server.ended;

    const copied = new DatabaseSync(join(copy, "waypost.db"));
    copied.exec(`update messages set due_at = 1 where state = 'pending'`);
    copied.close();
    const again = await startWaypost(["dev", "--port", "0", "--data", copy]);
    const arrived = (): string[] => judge.calls.map(({ limiter }) => limiter).filter((flow) => flow.startsWith("delayed"));
    while (arrived().length < delayed.length) await pause(20);
    expect(arrived().toSorted()).toEqual(delayed.toSorted());
    again.kill("SIGTERM");
    expect((await again.ended).code).toBe(0);
  },
);
