import { expect, onTestFinished, test } from "vitest";
import { startPostgres } from "../postgres.ts";
import { seeEachOther, startNodes } from "./nodes.ts";
import { developmentToken, startDestination, startWaypost, temporaryFolder } from "./waypost.ts";

// Real servers, and a receiver that answers at once and reports later.

const startReceiver = () => startDestination(() => ({ status: 202, headers: { "svc-ack": "later" } }));

async function ask(
  server: { url: string },
  path: string,
  init: RequestInit & { token?: string } = {},
): Promise<Record<string, unknown>> {
  const { token = developmentToken, headers, ...rest } = init;
  const response = await fetch(`${server.url}${path}`, {
    ...rest,
    headers: { authorization: `Bearer ${token}`, ...headers },
  });
  return (await response.json()) as Record<string, unknown>;
}

const report = (server: { url: string }, attempt: string, body: unknown) =>
  fetch(`${server.url}/v2/attempts`, {
    ...{ method: "POST", headers: { "svc-attempt": attempt }, body: JSON.stringify(body) },
  });

test("an attempt that its receiver holds survives the death of the server, and is made once", async () => {
  const receiver = await startReceiver();
  const data = temporaryFolder();
  const first = await startWaypost(["dev", "--port", "0", "--data", data, "--log-level", "debug"]);
  const sent = { method: "POST", headers: { "svc-ack-timeout": "1h" }, body: "render 7" };
  const published = await ask(first, `/v2/publish/${receiver.url}/work`, sent);
  const id = String(published["messageId"]);
  await expect.poll(async () => (await ask(first, `/v2/messages/${id}`))["state"]).toBe("acknowledging");
  first.kill("SIGKILL");
  const { out, err } = await first.ended;
  const second = await startWaypost(["dev", "--port", "0", "--data", data, "--log-level", "debug"]);
  expect((await ask(second, `/v2/messages/${id}`))["state"]).toBe("acknowledging");
  const attempt = String(receiver.arrivals[0]?.headers["svc-attempt"]);
  for (let turn = 0; turn < 2; turn++) {
    const reply = await report(second, attempt, { outcome: "ok", body: "made 7" });
    expect([reply.status, await reply.json()]).toEqual([200, { messageId: id, became: "delivered" }]);
  }
  expect((await report(second, attempt, { outcome: "failed" })).status).toBe(409);
  expect((await ask(second, `/v2/messages/${id}`))["state"]).toBe("delivered");
  expect(receiver.arrivals).toHaveLength(1);
  second.kill("SIGTERM");
  const ended = await second.ended;
  expect(`${out}${err}${ended.out}${ended.err}`).not.toContain(attempt.split(".")[0]);
});

test(
  "another node takes the report, also after the death of the node that sent",
  { tags: "long" },
  async () => {
    const postgres = await startPostgres();
    onTestFinished(() => postgres.kill());
    const receiver = await startReceiver();
    const { nodes, token } = await startNodes(postgres.url, ["one", "two"]);
    const [one, two] = nodes;
    if (!one || !two) throw new Error("there are no nodes");
    await seeEachOther(postgres.url, 2);
    const sent = { token, method: "POST", headers: { "svc-ack-timeout": "1h" } };
    const ids = await Promise.all(
      ["a", "b"].map(async (path) =>
        String((await ask(one, `/v2/publish/${receiver.url}/${path}`, sent))["messageId"]),
      ),
    );
    const states = () =>
      Promise.all(ids.map(async (id) => (await ask(two, `/v2/messages/${id}`, { token }))["state"]));
    await expect.poll(states).toEqual(["acknowledging", "acknowledging"]);
    const attempts = ids.map((id) =>
      String(
        receiver.arrivals.find(({ headers }) => headers["svc-message-id"] === id)?.headers["svc-attempt"],
      ),
    );
    expect((await report(two, attempts[0] ?? "", { outcome: "ok" })).status).toBe(200);
    one.kill("SIGKILL");
    expect((await report(two, attempts[1] ?? "", { outcome: "ok" })).status).toBe(200);
    expect(await states()).toEqual(["delivered", "delivered"]);
    expect(receiver.arrivals).toHaveLength(2);
  },
);
