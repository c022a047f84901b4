import { describe, expect, test } from "vitest";
import { house } from "./house.ts";
import type { House } from "./house.ts";

const [a, b] = ["https://a.example/x", "https://b.example/y?z=1"] as const;
const path = "/v2/topics/orders";
const json = (body: unknown) => ({ body: JSON.stringify(body) });
const add = ({ ask }: House, endpoints: unknown) => ask("POST", `${path}/endpoints`, json({ endpoints }));
const patch = ({ ask }: House, headers: unknown) => ask("PATCH", path, json({ headers }));

async function homeWith(
  headers: Record<string, string | string[]> = {},
  endpoints: unknown = [{ url: a, name: "first" }, { url: b }],
): Promise<House> {
  const home = await house();
  expect((await add(home, endpoints)).status).toBe(200);
  if (Object.keys(headers).length > 0) expect((await patch(home, headers)).status).toBe(200);
  return home;
}

const published = (home: House) => home.deliveries.map(({ message }) => message);

describe("a publish to a URL group", () => {
  test("is answered with one id for each endpoint, which the messages show", async () => {
    const home = await homeWith();
    const reply = await home.ask("POST", "/v2/publish/orders", { body: "x" });
    const [first, second] = published(home);
    expect(reply).toMatchObject({ status: 200 });
    expect(reply.body).toEqual([
      { messageId: first?.id, url: a },
      { messageId: second?.id, url: b },
    ]);
    const one = (await home.ask("GET", `/v2/messages/${first?.id}`)).body;
    expect(one).toMatchObject({ url: a, topicName: "orders", endpointName: "first", body: "x" });
    const other = (await home.ask("GET", `/v2/messages/${second?.id}`)).body;
    expect(other).toMatchObject({ url: b, topicName: "orders" });
    expect(other).not.toHaveProperty("endpointName");
    const { events } = (await home.ask("GET", `/v2/events?messageId=${first?.id}`)).body;
    expect(events[0]).toMatchObject({ topicName: "orders", endpointName: "first" });
  });

  test("says of each endpoint whether it is an older message, and 202 when all are", async () => {
    const home = await homeWith({}, [{ url: a }]);
    const headers = { "svc-content-based-deduplication": "true" };
    const post = () => home.ask("POST", "/v2/publish/orders", { headers, body: "x" });
    const [{ messageId }] = (await post()).body;
    expect(await post()).toMatchObject({ status: 202, body: [{ messageId, url: a, deduplicated: true }] });
    await add(home, [{ url: b }]);
    const third = await post();
    expect(third.status).toBe(200);
    expect(third.body).toEqual([
      { messageId, url: a, deduplicated: true },
      { messageId: expect.stringMatching(/^msg_/), url: b },
    ]);
  });

  test("that breaks a limit is stored for nobody", async () => {
    const home = await homeWith();
    const error = "retries: 1001 asked for, the limit is 1000";
    expect(await home.ask("POST", "/v2/publish/orders", { headers: { "svc-retries": "1001" } })).toMatchObject({
      status: 412,
      body: { error },
    });
    expect(home.deliveries).toEqual([]);
  });

  test("that goes between the look and the publish is answered with 404", async () => {
    const home = await house({
      wrap: (store) => ({
        ...store,
        execute: async (name, input, haste) => {
          if (name === "publish") await store.execute("deleteGroup", { account: "acc_1", name: "orders" });
          return store.execute(name, input, haste);
        },
      }),
    });
    await add(home, [{ url: a }]);
    const error = "destination: there is no URL group orders with endpoints";
    expect(await home.ask("POST", "/v2/publish/orders")).toMatchObject({ status: 404, body: { error } });
  });

  test("takes no query, and says so", async () => {
    const home = await homeWith();
    const error = 'destination: a URL group takes no query, because its endpoints have their own; leave out "?retries=3"';
    expect(await home.ask("POST", "/v2/publish/orders?retries=3&svc-retries=3")).toMatchObject({ status: 400, body: { error } });
    expect(home.deliveries).toEqual([]);
  });

  test("with a body that is too large for all endpoints together is refused", async () => {
    const endpoints = Array.from({ length: 100 }, (_, at) => ({ url: `https://e${at}.example` }));
    const home = await homeWith({}, endpoints);
    const bytes = Math.floor((256 * 1024 * 1024) / 100);
    const error = `body: ${bytes + 1} bytes for each of the 100 endpoints of orders, the limit is 268435456 for all of a request together`;
    expect(await home.ask("POST", "/v2/publish/orders", { body: Buffer.alloc(bytes + 1) })).toMatchObject({ status: 413, body: { error } });
    expect(home.deliveries).toEqual([]);
    expect((await home.ask("POST", "/v2/publish/orders", { body: "small" })).body).toHaveLength(100);
  });
});

describe("a batch with URL groups", () => {
  const batch = (home: House, items: unknown) => home.ask("POST", "/v2/batch", { body: JSON.stringify(items) });

  test("answers a list in the place of each, and has their default headers below those of the item", async () => {
    const home = await homeWith({ "Svc-Retries": "7", "Svc-Forward-X": "g" });
    const reply = await batch(home, [
      { destination: "orders", headers: { "upstash-retries": "2" } },
      { destination: "https://c.example" },
      { destination: "orders", queue: "q", headers: { "svc-forward-x": "i" } },
      { destination: "nothing" },
    ]);
    const messages = published(home);
    expect(reply.body).toEqual([
      [
        { messageId: messages[0]?.id, url: a },
        { messageId: messages[1]?.id, url: b },
      ],
      { messageId: messages[2]?.id, url: "https://c.example" },
      [
        { messageId: messages[3]?.id, url: a },
        { messageId: expect.stringMatching(/^msg_/), url: b },
      ],
      { error: 'destination: "nothing" is neither a URL with http:// or https:// nor a known URL group' },
    ]);
    expect(messages.map(({ retries }) => retries)).toEqual([2, 2, 3, 7]);
    expect(messages.map(({ headers }) => headers)).toEqual([[["X", "g"]], [["X", "g"]], [], [["X", "i"]]]);
    // One at a time: the other message of the queue waits.
    const waiting = (await home.ask("GET", `/v2/messages/${reply.body[2][1].messageId}`)).body;
    expect(waiting).toMatchObject({ queueName: "q", topicName: "orders" });
  });

  test("makes ten thousand messages of them at most", async () => {
    const home = await homeWith(
      {},
      Array.from({ length: 100 }, (_, at) => ({ url: `https://e${at}.example` })),
    );
    const { body } = await batch(
      home,
      Array.from({ length: 102 }, () => ({ destination: "orders" })),
    );
    const error = "destination: a message for each of the 100 endpoints of orders, the limit is 10000 for a request; send several";
    expect(body.slice(0, 100).every((one: unknown) => Array.isArray(one) && one.length === 100)).toBe(true);
    expect(body.slice(100)).toEqual([{ error }, { error }]);
    expect(home.deliveries).toHaveLength(10_000);
  });
});
