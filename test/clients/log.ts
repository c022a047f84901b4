import { expect, test } from "vitest";
import type { TestUser } from "./clientTestServer.ts";
import { eventually, delayedDestination, startVerifyingDestination } from "./clientTestServer.ts";

/** Tests the log with the published client. */
export function log(createUser: () => TestUser): void {
  test("the log has an entry for each step, with the labels", async () => {
    const user = createUser();
    const { client } = user;
    let calls = 0;
    const destination = await startVerifyingDestination(user, () => ({
      status: ++calls === 1 ? 503 : 200,
      headers: { "retry-after": "0" },
      body: "busy",
    }));
    const { messageId } = await client.publish({
      url: destination.url,
      body: "in",
      label: ["told", "twice"],
    });
    const ask = () => client.logs({ filter: { messageId } });
    const { logs, events, cursor } = await eventually(ask, (page) => page.logs[0]?.state === "DELIVERED");
    expect(cursor).toBeUndefined();
    expect(events).toEqual(logs);
    expect(logs.map(({ state }) => state).reverse()).toEqual([
      "CREATED",
      "ACTIVE",
      "ERROR",
      "RETRY",
      "ACTIVE",
      "DELIVERED",
    ]);
    const ofEach = {
      messageId,
      url: destination.url,
      label: "told",
      labels: ["told", "twice"],
      time: expect.any(Number),
    };
    expect(logs).toEqual(logs.map(() => expect.objectContaining(ofEach)));
    expect(logs.find(({ state }) => state === "ERROR")).toMatchObject({
      responseStatus: 503,
      responseBody: Buffer.from("busy").toString("base64"),
      responseHeaders: { "Retry-After": ["0"] },
      error: expect.any(String),
      nextDeliveryTime: expect.any(Number),
      body: Buffer.from("in").toString("base64"),
    });
    expect(await client.events({ filter: { messageId } })).toEqual({ logs, events: logs, cursor: undefined });
  });

  test("a page has a cursor if there are more entries", async () => {
    const { client } = createUser();
    const ids: string[] = [];
    for (const label of ["a", "b", "c"])
      ids.unshift((await client.publish({ ...delayedDestination, label })).messageId);
    const seen: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await client.logs({ count: 2, ...(cursor === undefined ? {} : { cursor }) });
      seen.push(...page.logs.map(({ messageId }) => messageId));
      cursor = page.cursor;
    } while (cursor);
    expect(seen).toEqual(ids);
    expect(cursor).toBeUndefined();
    // The older position of the count.
    expect((await client.logs({ filter: { count: 1 } })).logs).toHaveLength(1);
  });

  test("a time can be the first cursor, as in the client's documentation", async () => {
    const { client, url, token } = createUser();
    const ids: string[] = [];
    for (let number = 0; number < 3; number++)
      ids.unshift((await client.publish(delayedDestination)).messageId);
    const seen: string[] = [];
    // A time in the future, so that all entries are before it.
    let cursor: string | number = Date.now() + 60_000;
    while (cursor !== 0) {
      const page: Awaited<ReturnType<typeof client.logs>> = await client.logs({ cursor, count: 2 });
      seen.push(...page.logs.map(({ messageId }) => messageId));
      cursor = page.cursor ?? 0;
    }
    expect(seen).toEqual(ids);
    expect((await client.logs({ cursor: Date.now() - 60_000 })).logs).toEqual([]);
    const forward = async (cursor: number): Promise<string[]> => {
      const answer = await fetch(`${url}/v2/events?order=earliestFirst&cursor=${cursor}`, {
        headers: { authorization: `Bearer ${token}` },
      });
      const { events } = (await answer.json()) as { events: { messageId: string }[] };
      return events.map(({ messageId }) => messageId);
    };
    const { createdAt } = await client.messages.get(ids[2] ?? "");
    expect(await forward(createdAt)).toEqual(ids.toReversed());
    expect(await forward(Date.now() + 60_000)).toEqual([]);
  });

  test("each filter selects its entries", async () => {
    const { client } = createUser();
    const before = Date.now() - 60_000;
    const after = Date.now() + 60_000;
    await client.urlGroups.addEndpoints({ name: "group", endpoints: [{ url: "https://group.example" }] });
    const ids = {
      red: (await client.publish({ url: "https://one.example/a", delay: 600, label: "red" })).messageId,
      blue: (
        await client.publish({
          url: "https://two.example/b",
          delay: 600,
          label: "blue",
          flowControl: { key: "shop", rate: 1 },
        })
      ).messageId,
      group: (await client.publish({ urlGroup: "group", delay: 600 }))[0]?.messageId ?? "",
      line: (await client.queue({ queueName: "line" }).enqueue({ url: "https://line.example", delay: 600 }))
        .messageId,
    };
    const names = Object.keys(ids) as (keyof typeof ids)[];
    const cases = [
      [{ label: "red" }, ["red"]],
      [{ label: ["red", "blue"] }, ["red", "blue"]],
      [{ url: ["https://one.example/a", "https://line.example"] }, ["red", "line"]],
      [{ host: ["one.example", "two.example"] }, ["red", "blue"]],
      [{ path: ["/a", "/b"] }, ["red", "blue"]],
      [{ urlGroup: "group" }, ["group"]],
      [{ topicName: "group" }, ["group"]],
      [{ queueName: "line" }, ["line"]],
      [{ scheduleId: "scd_none" }, []],
      [{ flowControlKey: "shop" }, ["blue"]],
      [{ callerIp: "127.0.0.1" }, names],
      [{ callerIp: "192.0.2.1" }, []],
      [{ state: "CREATED" }, names],
      [{ state: "DELIVERED" }, []],
      [{ state: "IN_PROGRESS" }, []],
      [{ messageId: ids.blue }, ["blue"]],
      [{ fromDate: before, toDate: new Date(after) }, names],
      [{ fromDate: after }, []],
    ] as const;
    for (const [filter, wanted] of cases) {
      const { logs } = await client.logs({ filter: filter as object });
      expect({ filter, found: new Set(logs.map(({ messageId }) => messageId)) }).toEqual({
        filter,
        found: new Set(wanted.map((name) => ids[name])),
      });
    }
    const { logs } = await client.logs({ messageIds: [ids.line, ids.red] });
    expect(new Set(logs.map(({ messageId }) => messageId))).toEqual(new Set([ids.line, ids.red]));
    expect(logs.find(({ messageId }) => messageId === ids.line)).toMatchObject({ queueName: "line" });
    expect((await client.logs({ filter: { urlGroup: "group" } })).logs).toMatchObject([
      { urlGroup: "group", topicName: "group" },
    ]);
  });
}
