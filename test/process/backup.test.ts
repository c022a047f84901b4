import { copyFileSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { request } from "undici";
import { expect, test } from "vitest";
import { startDeliveryChecker } from "./deliveryChecker.ts";
import { developmentToken, startWaypost, temporaryFolder } from "./waypost.ts";

test(
  "a copy taken as the guide says while the server works is a complete store",
  { timeout: 90_000 },
  async () => {
    const data = temporaryFolder();
    const copy = temporaryFolder();
    const checker = await startDeliveryChecker();
    const server = await startWaypost(["dev", "--port", "0", "--data", data]);
    const publish = async (name: string, headers: Record<string, string> = {}): Promise<void> => {
      const options = {
        method: "POST",
        headers: { authorization: `Bearer ${developmentToken}`, ...headers },
        body: "x",
      } as const;
      const answer = await request(`${server.url}/v2/publish/${checker.url}/${name}`, options);
      await answer.body.dump();
    };
    const delayed = Array.from({ length: 30 }, (_, index) => `delayed-${index}`);
    await Promise.all(delayed.map((name) => publish(name, { "svc-delay": "1h" })));
    let going = true;
    const load = (async () => {
      while (going) await publish("more");
    })();
    while (checker.calls.length < 50) await pause(5);
    const database = new DatabaseSync(join(data, "waypost.db"), { readOnly: true });
    database.exec(`vacuum into '${join(copy, "waypost.db")}'`);
    database.close();
    // Keys are kept apart from copies of the data, and must be restored with them.
    copyFileSync(join(data, "keys"), join(copy, "keys"));
    const during = checker.calls.length;
    while (checker.calls.length < during + 50) await pause(5);
    going = false;
    await load;
    server.kill("SIGKILL");
    await server.ended;

    const copied = new DatabaseSync(join(copy, "waypost.db"));
    copied.exec(`update messages set due_at = 1 where state = 'pending'`);
    copied.close();
    const again = await startWaypost(["dev", "--port", "0", "--data", copy]);
    const arrived = (): string[] =>
      checker.calls.map(({ limiter }) => limiter).filter((flow) => flow.startsWith("delayed"));
    while (arrived().length < delayed.length) await pause(20);
    expect(arrived().toSorted()).toEqual(delayed.toSorted());
    again.kill("SIGTERM");
    expect((await again.ended).code).toBe(0);
  },
);
