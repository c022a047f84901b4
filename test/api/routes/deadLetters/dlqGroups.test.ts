import { describe, expect, test } from "vitest";
import { createTestServer } from "../../testServer.ts";
import { failMessage, failThree, listDeadLetters } from "./deadLetters.ts";

describe("groups of dead letters", () => {
  test("have one URL, one status and one error, and the largest comes first", async () => {
    const server = await createTestServer();
    const says = (text: string) => ({
      outcome: { status: 500, body: Buffer.from(JSON.stringify({ message: text })) },
    });
    const first = server.clock.now + 1_000;
    await failMessage(server, "https://one.example", says("no user 17"));
    await failMessage(server, "https://one.example", { outcome: { status: 503 } });
    await failMessage(server, "https://one.example", says("no user 21"));
    await failMessage(server, "https://two.example", { outcome: { error: "connection refused" } });
    const { status, body } = await server.ask("GET", "/v2/dlq/groups");
    expect(status).toBe(200);
    const cause = expect.stringMatching(/^[0-9a-z]{11}$/);
    const trend = (last: number) => [...Array(23).fill(0), last];
    expect(body).toEqual({
      entries: 4,
      causes: 3,
      groups: [
        {
          ...{ cause, trend: trend(2) },
          url: "https://one.example",
          responseStatus: 500,
          error: "no user …",
          count: 2,
          firstFailedAt: first,
          lastFailedAt: first + 2_000,
          dlqId: expect.stringContaining(String(first + 2_000)),
        },
        {
          ...{ cause, trend: trend(1) },
          url: "https://two.example",
          error: "connection refused",
          count: 1,
          firstFailedAt: first + 3_000,
          lastFailedAt: first + 3_000,
          dlqId: expect.any(String),
        },
        {
          ...{ cause, trend: trend(1) },
          url: "https://one.example",
          responseStatus: 503,
          error: "the endpoint answered with status …",
          count: 1,
          firstFailedAt: first + 1_000,
          lastFailedAt: first + 1_000,
          dlqId: expect.any(String),
        },
      ],
    });
  });

  test("contain only dead letters that pass the filters, and those of this account", async () => {
    const server = await createTestServer();
    await failMessage(server, "https://one.example", { headers: { "svc-label": "x" } });
    await failMessage(server, "https://two.example");
    expect((await server.ask("GET", "/v2/dlq/groups?label=x")).body).toMatchObject({
      entries: 1,
      groups: [{ url: "https://one.example" }],
    });
    expect((await server.ask("GET", "/v2/dlq/groups", { token: "b3RoZXI=" })).body).toEqual({
      groups: [],
      entries: 0,
      causes: 0,
    });
  });

  test("do not show a redacted response", async () => {
    const server = await createTestServer();
    await failMessage(server, "https://one.example", {
      headers: { "svc-redact-fields": "body" },
      outcome: { status: 500, body: Buffer.from('{"message":"secret"}') },
    });
    expect((await server.ask("GET", "/v2/dlq/groups")).body).toMatchObject({
      groups: [{ error: "the endpoint answered with status …" }],
    });
  });

  test("count all dead letters, but with other filters the latest 1,000", async () => {
    const server = await createTestServer();
    for (let at = 0; at < 1_001; at++) await failMessage(server, "https://one.example", { body: "" });
    const all = await server.ask("GET", "/v2/dlq/groups");
    expect(all.body).toMatchObject({ entries: 1_001, causes: 1, groups: [{ count: 1_001 }] });
    expect(all.body).not.toHaveProperty("more");
    const [{ cause }] = all.body.groups as [{ cause: string }];
    const { body } = await server.ask("GET", "/v2/dlq/groups?responseStatus=500");
    expect(body).toMatchObject({ entries: 1_000, more: true, groups: [{ cause, count: 1_000 }] });
    expect(
      (await server.ask("GET", `/v2/dlq/groups?responseStatus=500&cursor=${body.cursor}`)).body,
    ).toMatchObject({ entries: 1, groups: [{ cause, count: 1 }] });
    for (const cursor of [body.cursor, "x", "%00"])
      expect((await server.ask("GET", `/v2/dlq/groups?cursor=${cursor}`)).status).toBe(400);
  });

  test("select exactly their dead letters, in lists and in actions", async () => {
    const { server, ids } = await failThree();
    const { groups } = (await server.ask("GET", "/v2/dlq/groups")).body as {
      groups: { cause: string; dlqId: string }[];
    };
    expect(groups.map(({ dlqId }) => dlqId)).toEqual([...ids].reverse());
    const cause = groups[0]?.cause;
    const find = async (query: string) => {
      const { messages } = await listDeadLetters(server, query);
      return messages.map(({ dlqId }) => dlqId);
    };
    expect(await find(`?cause=${cause}`)).toEqual([ids[2]]);
    expect(await find(`?cause=${cause},${groups[1]?.cause}`)).toEqual([ids[1], ids[2]]);
    expect(await find(`?cause=${cause}&label=z`)).toEqual([]);
    expect(await find("?cause=unknown")).toEqual([]);
    expect((await server.ask("GET", "/v2/dlq?cause=")).status).toBe(400);
    expect((await server.ask("DELETE", "/v2/dlq?cause=unknown")).body).toMatchObject({ deleted: 0 });
    expect((await server.ask("DELETE", "/v2/workflows/dlq?cause=unknown")).body).toMatchObject({
      deleted: 0,
    });
    const other = { token: "b3RoZXI=" };
    expect((await server.ask("DELETE", `/v2/dlq?cause=${cause}`, other)).body).toMatchObject({ deleted: 0 });
    expect((await server.ask("DELETE", `/v2/dlq?cause=${cause}`)).body).toMatchObject({ deleted: 1 });
    expect(await find("")).toEqual([ids[0], ids[1]]);
  });
});
