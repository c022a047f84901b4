import { describe, expect, test } from "vitest";
import { createTestServer, otherToken, testTime } from "../../testServer.ts";
import type { TestServer } from "../../testServer.ts";
import { come, create, makeGroup, minute, read } from "./scheduleRequests.ts";

const run = ({ ask }: TestServer, id: string, token?: string) =>
  ask("POST", `/v2/schedules/${id}/run`, token === undefined ? {} : { token });

describe("running a schedule now", () => {
  test.each(["svc", "upstash"])(
    "publishes its message with settings of the brand %s, and moves no time",
    async (brand) => {
      const server = await createTestServer();
      const headers = { [`${brand}-schedule-id`]: "tick", [`${brand}-label`]: "red" };
      await create(server, "https://e.example/x", { headers, body: "hello" });
      const before = await read(server, "tick");
      server.clock.now += 1_000;
      const { status, body } = await run(server, "tick");
      const { message } = server.delivery();
      expect({ status, body }).toEqual({
        status: 200,
        body: { scheduleId: "tick", messages: [{ messageId: message.id, url: "https://e.example/x" }] },
      });
      expect(message).toMatchObject({ scheduleId: "tick", labels: ["red"] });
      expect(await read(server, "tick")).toEqual(before);
      const audit = (await server.ask("GET", "/v2/audit")).body.entries;
      expect(audit[0]).toMatchObject({ action: "schedule.run", object: "tick", count: 1 });
    },
  );

  test("works while it is paused", async () => {
    const server = await createTestServer();
    const id = await create(server, "https://e.example/x");
    await server.ask("POST", `/v2/schedules/${id}/pause`);
    expect((await run(server, id)).status).toBe(200);
    expect((await read(server, id)).isPaused).toBe(true);
  });

  test("publishes to all endpoints of a group, or is refused if there are none", async () => {
    const server = await createTestServer();
    await makeGroup(server, ["https://one.example/", "https://two.example/"]);
    const id = await create(server, "shops");
    expect((await run(server, id)).body.messages).toMatchObject([
      { url: "https://one.example/" },
      { url: "https://two.example/" },
    ]);
    await server.ask("DELETE", "/v2/topics/shops");
    expect(await run(server, id)).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining("there is no URL group shops with endpoints") },
    });
  });

  test("is 404 for an unknown schedule and for another account", async () => {
    const server = await createTestServer();
    const id = await create(server, "https://e.example/x");
    for (const reply of [await run(server, "none"), await run(server, id, otherToken)])
      expect(reply.status).toBe(404);
    expect(server.deliveries).toEqual([]);
  });

  test.each([
    [["read"], 403],
    [["publish"], 403],
    [["manage"], 200],
  ])("with a token that may %s is answered with %d", async (verbs, status) => {
    const server = await createTestServer();
    const id = await create(server, "https://e.example/x");
    const made = await server.ask("POST", "/v2/tokens", { body: JSON.stringify({ verbs }) });
    expect(made.status, JSON.stringify(made.body)).toBe(201);
    expect((await run(server, id, made.body.token)).status).toBe(status);
  });
});

describe("the next times of a schedule", () => {
  test("are five, the next firing first", async () => {
    const server = await createTestServer();
    const id = await create(server, "https://e.example/x");
    const { nextScheduleTime, nextTimes } = await read(server, id);
    expect(nextTimes).toEqual([5, 10, 15, 20, 25].map((minutes) => testTime + minutes * minute));
    expect(nextScheduleTime).toBe(nextTimes[0]);
    await come(server, testTime + 5 * minute);
    expect((await read(server, id)).nextTimes[0]).toBe(testTime + 10 * minute);
  });

  test("begin with a late firing, which happens once", async () => {
    const server = await createTestServer();
    const id = await create(server, "https://e.example/x");
    server.clock.now = testTime + 12 * minute;
    expect((await read(server, id)).nextTimes).toEqual(
      [5, 15, 20, 25, 30].map((minutes) => testTime + minutes * minute),
    );
  });

  test("are absent while the schedule is paused, and in the list", async () => {
    const server = await createTestServer();
    const id = await create(server, "https://e.example/x");
    const [listed] = (await server.ask("GET", "/v2/schedules")).body;
    expect(listed).not.toHaveProperty("nextTimes");
    await server.ask("POST", `/v2/schedules/${id}/pause`);
    expect(await read(server, id)).not.toHaveProperty("nextTimes");
  });
});
