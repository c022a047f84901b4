import { QstashEmptyArrayError, QstashError } from "@upstash/qstash";
import { expect, test } from "vitest";
import type { TestUser } from "./clientTestServer.ts";
import { eventually, startVerifyingDestination } from "./clientTestServer.ts";

/**
 * Publishes to a destination that always fails, and waits for the dead letters. Returns the ids of each path.
 */
async function createDeadLetters(user: TestUser, paths: readonly string[], more: object = {}) {
  const { client } = user;
  const destination = await startVerifyingDestination(user, () => ({
    status: 418,
    headers: { "x-pot": "small" },
    body: "no tea",
  }));
  const publish = async (path: string) =>
    (await client.publish({ url: destination.url + path, retries: 0, label: path.slice(1), ...more }))
      .messageId;
  const ids = Object.fromEntries(
    await Promise.all(paths.map(async (path) => [path, await publish(path)] as const)),
  );
  const { messages } = await eventually(
    () => client.dlq.listMessages(),
    (page) => page.messages.length === paths.length,
  );
  const entry = (path: string) => {
    const found = messages.find(({ messageId }) => messageId === ids[path]);
    if (!found) throw new Error(`no dead letter of ${path}`);
    return found;
  };
  return { client, url: destination.url, ids, messages, entry };
}

/** Tests the dead-letter queue with the published client. */
export function deadLetters(createUser: () => TestUser): void {
  testListing(createUser);
  testDeleting(createUser);
  testRetrying(createUser);
}

function testListing(createUser: () => TestUser): void {
  test("a dead letter has its message and the last response of the destination", async () => {
    const { client, url, ids, entry } = await createDeadLetters(createUser(), ["/pot"], {
      body: "tea?",
      flowControl: { key: "shop", parallelism: 2 },
    });
    expect(entry("/pot")).toMatchObject({
      dlqId: expect.any(String),
      messageId: ids["/pot"],
      url: `${url}/pot`,
      method: "POST",
      body: "tea?",
      maxRetries: 0,
      responseStatus: 418,
      responseBody: "no tea",
      responseHeader: { "X-Pot": ["small"] },
      createdAt: expect.any(Number),
      label: "pot",
      labels: ["pot"],
      flowControlKey: "shop",
      parallelism: 2,
    });
    const page = await client.dlq.listMessages();
    expect(page.cursor).toBeUndefined();
  });

  test("a dead letter has the settings of its publish, and is found by each of them", async () => {
    const user = createUser();
    const { client } = user;
    const destination = await startVerifyingDestination(user, () => ({ status: 500 }));
    await client.urlGroups.addEndpoints({
      name: "group",
      endpoints: [{ name: "named", url: `${destination.url}/one` }],
    });
    const ways = {
      urlGroup: "group",
      retries: 0,
      flowControl: { key: "shop", rate: 100, period: "1h" },
    } as const;
    const [message] = await client.queue({ queueName: "line" }).enqueue(ways);
    await client.publish({ url: `${destination.url}/two`, retries: 0 });
    await eventually(
      () => client.dlq.listMessages(),
      (page) => page.messages.length === 2,
    );
    for (const filter of [
      { urlGroup: ["group", "other"] },
      { queueName: "line" },
      { flowControlKey: "shop" },
    ]) {
      const { messages } = await client.dlq.listMessages({ filter });
      expect(messages).toMatchObject([
        {
          messageId: message?.messageId,
          urlGroup: "group",
          topicName: "group",
          endpointName: "named",
          queueName: "line",
          flowControlKey: "shop",
          rate: 100,
          ratePerSecond: 100,
          period: 3600,
        },
      ]);
    }
    expect((await client.dlq.retry({ filter: { urlGroup: "group" } })).responses).toHaveLength(1);
    const [again] = await eventually(
      async () => (await client.dlq.listMessages({ filter: { urlGroup: "group" } })).messages,
      ({ length }) => length === 1,
    );
    expect(again).toMatchObject({
      topicName: "group",
      endpointName: "named",
      queueName: "line",
      flowControlKey: "shop",
    });
    expect(await client.dlq.delete({ filter: { queueName: "line" } })).toEqual({ deleted: 1 });
  });

  test("each filter is accepted and selects its dead letters", async () => {
    const user = createUser();
    const before = Date.now() - 60_000;
    const after = Date.now() + 60_000;
    const { client, url, ids, entry } = await createDeadLetters(user, ["/one", "/two"]);
    const cases = [
      [{ messageId: ids["/one"] }, ["/one"]],
      [{ url: `${url}/one` }, ["/one"]],
      [{ url: [`${url}/one`, `${url}/two`] }, ["/one", "/two"]],
      [{ urlGroup: "none" }, []],
      [{ scheduleId: "scd_none" }, []],
      [{ queueName: "none" }, []],
      [{ callerIp: "127.0.0.1" }, ["/one", "/two"]],
      [{ callerIp: "192.0.2.1" }, []],
      [{ label: "two" }, ["/two"]],
      [{ label: ["one", "two", "three"] }, ["/one", "/two"]],
      [{ label: "one", url: `${url}/two` }, []],
      [{ flowControlKey: "none" }, []],
      [{ responseStatus: 999 }, []],
      [{ responseStatus: 418 }, ["/one", "/two"]],
      [{ fromDate: before, toDate: after }, ["/one", "/two"]],
      [{ fromDate: new Date(after) }, []],
      [{ toDate: new Date(before) }, []],
    ] as const;
    for (const [filter, wanted] of cases) {
      const { messages } = await client.dlq.listMessages({ filter: filter as object });
      expect({ filter, found: new Set(messages.map(({ messageId }) => messageId)) }).toEqual({
        filter,
        found: new Set(wanted.map((path) => ids[path])),
      });
    }
    const { messages } = await client.dlq.listMessages({ dlqIds: [entry("/two").dlqId] });
    expect(messages.map(({ messageId }) => messageId)).toEqual([ids["/two"]]);
  });

  test("a page has a cursor if there are more entries", async () => {
    const { client, ids } = await createDeadLetters(createUser(), ["/one", "/two", "/three"]);
    const first = await client.dlq.listMessages({ count: 2 });
    expect(first.cursor).toEqual(expect.any(String));
    const second = await client.dlq.listMessages({ count: 2, cursor: first.cursor ?? "" });
    expect(second.cursor).toBeUndefined();
    expect(new Set([...first.messages, ...second.messages].map(({ messageId }) => messageId))).toEqual(
      new Set(Object.values(ids)),
    );
    expect([first.messages.length, second.messages.length]).toEqual([2, 1]);
  });

  test("unknown filters are refused with 400 in every call", async () => {
    const { client } = createUser();
    for (const filter of [{ labeel: "some-value" }, { host: "example.com" }, { path: "/a" }] as object[]) {
      const bulk = { filter: filter as { label: string } };
      await expect(client.dlq.listMessages({ filter })).rejects.toMatchObject({ status: 400 });
      await expect(client.dlq.delete(bulk)).rejects.toMatchObject({ status: 400 });
      await expect(client.dlq.retry(bulk)).rejects.toMatchObject({ status: 400 });
    }
    await expect(
      client.messages.cancel({ filter: { labeel: "x" } as object as { label: string } }),
    ).rejects.toMatchObject({ status: 400 });
    await expect(client.logs({ filter: { labeel: "x" } as object })).rejects.toMatchObject({ status: 400 });
    await expect(client.dlq.listMessages({ cursor: "nowhere" })).rejects.toMatchObject({ status: 400 });
  });

  test("the client refuses empty lists itself", async () => {
    const { client } = createUser();
    expect(await client.dlq.delete([])).toEqual({ deleted: 0 });
    expect(await client.dlq.retry([])).toEqual({ responses: [] });
    await expect(client.dlq.listMessages({ dlqIds: [] })).rejects.toThrow(QstashEmptyArrayError);
    await expect(client.dlq.delete({ dlqIds: [] })).rejects.toThrow(QstashError);
  });
}

function testDeleting(createUser: () => TestUser): void {
  test("a dead letter is deleted once and is then unknown", async () => {
    const { client, entry } = await createDeadLetters(createUser(), ["/one"]);
    const { dlqId } = entry("/one");
    expect(await client.dlq.delete(dlqId)).toEqual({ deleted: 1 });
    await expect(client.dlq.delete(dlqId)).rejects.toMatchObject({ status: 404 });
    expect(await client.dlq.listMessages()).toEqual({ messages: [], cursor: undefined });
  });

  test("many dead letters are deleted by their ids, and deleted ones are skipped", async () => {
    const { client, entry } = await createDeadLetters(createUser(), ["/one", "/two", "/three"]);
    const dlqIds = ["/one", "/two", "/three"].map((path) => entry(path).dlqId);
    expect(await client.dlq.deleteMany({ dlqIds: dlqIds.slice(0, 1) })).toEqual({ deleted: 1 });
    const gone = (count: number) =>
      dlqIds.slice(0, count).map((id) => ({ id, reason: "the dead letter does not exist" }));
    expect(await client.dlq.delete(dlqIds.slice(0, 2))).toEqual({ deleted: 1, failed: gone(1) });
    expect(await client.dlq.delete({ dlqIds })).toEqual({ deleted: 1, failed: gone(2) });
    expect(await client.dlq.delete({ dlqIds })).toEqual({ deleted: 0, failed: gone(3) });
  });

  test("a filter deletes its dead letters, `count` limits them, and `all` deletes the rest", async () => {
    const { client, ids } = await createDeadLetters(createUser(), ["/one", "/two", "/three", "/four"]);
    expect(await client.dlq.delete({ filter: { label: "none" } })).toEqual({ deleted: 0 });
    expect(await client.dlq.delete({ filter: { messageId: ids["/two"] ?? "" } })).toEqual({ deleted: 1 });
    const one = await client.dlq.delete({ filter: { label: ["one", "two", "three"] }, count: 1 });
    expect(one).toEqual({ deleted: 1, cursor: expect.any(String) });
    expect((await client.dlq.listMessages()).messages).toHaveLength(2);
    let deleted = 0;
    let cursor: string | undefined;
    do {
      const page = await client.dlq.delete({
        all: true,
        count: 1,
        ...(cursor === undefined ? {} : { cursor }),
      });
      deleted += page.deleted;
      cursor = page.cursor;
    } while (cursor);
    expect(deleted).toBe(2);
    expect((await client.dlq.listMessages()).messages).toEqual([]);
  });
}

function testRetrying(createUser: () => TestUser): void {
  test("a retried dead letter becomes a new message until it fails again", async () => {
    const { client, ids, entry, url } = await createDeadLetters(createUser(), ["/one"], {
      body: "again",
      headers: { "X-Mine": "kept" },
    });
    const { dlqId } = entry("/one");
    const retried = await client.dlq.retry(dlqId);
    expect(retried).toEqual({
      responses: [{ messageId: expect.stringMatching(/^msg_/), dlqId }],
      cursor: undefined,
    });
    expect(retried.responses[0]?.messageId).not.toBe(ids["/one"]);
    await expect(client.dlq.delete(dlqId)).rejects.toMatchObject({ status: 404 });
    const { messages } = await eventually(
      () => client.dlq.listMessages(),
      (page) => page.messages.length === 1,
    );
    expect(messages[0]).toMatchObject({
      messageId: retried.responses[0]?.messageId,
      url: `${url}/one`,
      body: "again",
      header: { "X-Mine": ["kept"] },
    });
  });

  test("many dead letters are retried by their ids, by a filter, or all", async () => {
    const { client, entry, ids } = await createDeadLetters(createUser(), ["/one", "/two", "/three"]);
    const dlqIds = ["/one", "/two"].map((path) => entry(path).dlqId);
    const back = (count: number) =>
      eventually(
        () => client.dlq.listMessages(),
        (page) => page.messages.length === count,
      );
    expect((await client.dlq.retry(dlqIds)).responses).toHaveLength(2);
    const gone = dlqIds.map((id) => ({ id, reason: "the dead letter does not exist" }));
    expect(await client.dlq.delete(dlqIds)).toEqual({ deleted: 0, failed: gone });
    await back(3);
    expect(await client.dlq.retry({ filter: { label: "none" } })).toEqual({
      responses: [],
      cursor: undefined,
    });
    expect((await client.dlq.retry({ filter: { messageId: ids["/three"] ?? "" } })).responses).toHaveLength(
      1,
    );
    await back(3);
    expect((await client.dlq.retry({ dlqIds: entry("/one").dlqId })).responses).toHaveLength(0);
    expect((await client.dlq.retry({ all: true })).responses).toHaveLength(3);
    await back(3);
  });
}
