import { expect, test } from "vitest";
import type { TestUser } from "./clientTestServer.ts";
import { delayedDestination, startVerifyingDestination } from "./clientTestServer.ts";

const endpoints = [
  { name: "first", url: "https://one.example/hook?x=1" },
  { name: "second", url: "https://two.example" },
];

/** Tests URL groups with the published client. */
export function groups(createUser: () => TestUser): void {
  test("a group is created with its endpoints, listed and read", async () => {
    const { client } = createUser();
    expect(await client.urlGroups.list()).toEqual([]);
    const name = "my-proxy-url-group";
    expect(await client.urlGroups.addEndpoints({ name, endpoints })).toBeUndefined();
    const [group, ...others] = await client.urlGroups.list();
    expect(others).toEqual([]);
    expect(group).toEqual({ name, endpoints, createdAt: expect.any(Number), updatedAt: expect.any(Number) });
    expect(await client.urlGroups.get(name)).toEqual(group);
    // The older name of the same call.
    expect(await client.topics.get(name)).toEqual(group);
  });

  test("an endpoint without a name has none", async () => {
    const { client } = createUser();
    await client.urlGroups.addEndpoints({ name: "bare", endpoints: [{ url: "https://one.example" }] });
    expect((await client.urlGroups.get("bare")).endpoints).toEqual([{ url: "https://one.example" }]);
  });

  test("adding changes the endpoint of that name and keeps the others", async () => {
    const { client } = createUser();
    await client.urlGroups.addEndpoints({ name: "group", endpoints });
    await client.urlGroups.addEndpoints({
      name: "group",
      endpoints: [{ name: "second", url: "https://new.example" }, { url: "https://three.example" }],
    });
    const group = await client.urlGroups.get("group");
    expect(group.endpoints).toEqual([
      endpoints[0],
      { name: "second", url: "https://new.example" },
      { url: "https://three.example" },
    ]);
    expect(group.updatedAt).toBeGreaterThanOrEqual(group.createdAt);
    expect(await client.urlGroups.list()).toHaveLength(1);
  });

  test("endpoints are removed by name or by URL, and the group with the last of them", async () => {
    const { client } = createUser();
    await client.urlGroups.addEndpoints({
      name: "group",
      endpoints: [...endpoints, { url: "https://three.example" }],
    });
    expect(
      await client.urlGroups.removeEndpoints({ name: "group", endpoints: [{ name: "first" }] }),
    ).toBeUndefined();
    await client.urlGroups.removeEndpoints({ name: "group", endpoints: [{ url: "https://three.example" }] });
    expect((await client.urlGroups.get("group")).endpoints).toEqual([endpoints[1]]);
    await client.urlGroups.removeEndpoints({ name: "group", endpoints: [{ url: "https://two.example" }] });
    await expect(client.urlGroups.get("group")).rejects.toMatchObject({ status: 404 });
    expect(await client.urlGroups.list()).toEqual([]);
  });

  test("a deleted group is unknown at once, for publishes as well", async () => {
    const { client } = createUser();
    await client.urlGroups.addEndpoints({ name: "group", endpoints });
    const [one] = await client.publish({ urlGroup: "group", delay: 600 });
    expect(await client.urlGroups.delete("group")).toBeUndefined();
    expect(await client.urlGroups.list()).toEqual([]);
    await expect(client.urlGroups.get("group")).rejects.toMatchObject({ status: 404 });
    await expect(client.publish({ urlGroup: "group" })).rejects.toMatchObject({ status: 404 });
    expect(await client.messages.get(one?.messageId ?? "")).toMatchObject({ topicName: "group" });
  });

  test("a publish to a group reaches each endpoint as a separate message", async () => {
    const user = createUser();
    const { client } = user;
    const destination = await startVerifyingDestination(user);
    const urls = [`${destination.url}/one?a=%20b`, `${destination.url}/two`];
    await client.urlGroups.addEndpoints({
      name: "both",
      endpoints: [{ name: "named", url: urls[0] ?? "" }, { url: urls[1] ?? "" }],
    });
    const results = await client.publishJSON({
      urlGroup: "both",
      body: { to: "all" },
      headers: { "X-Mine": "yes" },
    });
    expect(results).toEqual(urls.map((url) => ({ url, messageId: expect.stringMatching(/^msg_/) })));
    const arrivals = await destination.until(({ length }) => length === 2);
    for (const [at, path] of ["/one?a=%20b", "/two"].entries()) {
      const arrival = arrivals.find((one) => one.path === path);
      expect(arrival?.headers).toMatchObject({
        "upstash-message-id": results[at]?.messageId,
        "upstash-topic-name": "both",
        "x-mine": "yes",
      });
      expect(String(arrival?.body)).toBe('{"to":"all"}');
    }
    const [named, unnamed] = await Promise.all(
      results.map(({ messageId }) => client.messages.get(messageId)),
    );
    expect(named).toMatchObject({ urlGroup: "both", topicName: "both", endpointName: "named", url: urls[0] });
    expect(unnamed?.endpointName).toBeUndefined();
  });

  test("a group can be used by its older parameter, in a queue and in a batch", async () => {
    const { client } = createUser();
    await client.topics.addEndpoints({ name: "group", endpoints });
    const urls = endpoints.map(({ url }) => expect.objectContaining({ url, messageId: expect.any(String) }));
    expect(await client.publish({ topic: "group", delay: 60 })).toEqual(urls);
    const queued = await client.queue({ queueName: "line" }).enqueue({ urlGroup: "group", delay: 60 });
    expect(queued).toEqual(urls);
    expect(await client.messages.get(queued[0]?.messageId ?? "")).toMatchObject({
      queueName: "line",
      urlGroup: "group",
    });
    expect(await client.batchJSON([{ urlGroup: "group", body: {}, delay: 60 }])).toEqual([urls]);
  });

  test("a deduplication id applies to each endpoint", async () => {
    const { client } = createUser();
    await client.urlGroups.addEndpoints({ name: "group", endpoints: endpoints.slice(0, 1) });
    const once = { urlGroup: "group", delay: delayedDestination.delay, deduplicationId: "once" } as const;
    const [first] = await client.publish(once);
    await client.urlGroups.addEndpoints({ name: "group", endpoints });
    expect(await client.publish(once)).toEqual([
      { ...first, deduplicated: true },
      { url: endpoints[1]?.url, messageId: expect.any(String) },
    ]);
  });

  test("invalid names and endpoints are refused with 400", async () => {
    const { client } = createUser();
    const add = (name: string, url: string) => client.urlGroups.addEndpoints({ name, endpoints: [{ url }] });
    await expect(add("no such name", "https://one.example")).rejects.toMatchObject({ status: 400 });
    await expect(add("group", "ftp://one.example")).rejects.toMatchObject({ status: 400 });
    expect(await client.urlGroups.list()).toEqual([]);
  });
}
