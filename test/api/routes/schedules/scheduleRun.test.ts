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
      const home = await createTestServer();
      const headers = { [`${brand}-schedule-id`]: "tick", [`${brand}-label`]: "red" };
      await create(home, "https://e.example/x", { headers, body: "hello" });
      const before = await read(home, "tick");
      home.clock.now += 1_000;
      const { status, body } = await run(home, "tick");
      const { message } = home.delivery();
      expect({ status, body }).toEqual({
        status: 200,
        body: { scheduleId: "tick", messages: [{ messageId: message.id, url: "https://e.example/x" }] },
      });
      expect(message).toMatchObject({ scheduleId: "tick", labels: ["red"] });
      expect(await read(home, "tick")).toEqual(before);
      const audit = (await home.ask("GET", "/v2/audit")).body.entries;
      expect(audit[0]).toMatchObject({ action: "schedule.run", object: "tick", count: 1 });
    },
  );

  test("works while it is paused", async () => {
    const home = await createTestServer();
    const id = await create(home, "https://e.example/x");
    await home.ask("POST", `/v2/schedules/${id}/pause`);
    expect((await run(home, id)).status).toBe(200);
    expect((await read(home, id)).isPaused).toBe(true);
  });

  test("publishes to all endpoints of a group, or is refused if there are none", async () => {
    const home = await createTestServer();
    await makeGroup(home, ["https://one.example/", "https://two.example/"]);
    const id = await create(home, "shops");
    expect((await run(home, id)).body.messages).toMatchObject([
      { url: "https://one.example/" },
      { url: "https://two.example/" },
    ]);
    await home.ask("DELETE", "/v2/topics/shops");
    expect(await run(home, id)).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining("there is no URL group shops with endpoints") },
    });
  });

  test("is 404 for an unknown schedule and for another account", async () => {
    const home = await createTestServer();
    const id = await create(home, "https://e.example/x");
    for (const reply of [await run(home, "none"), await run(home, id, otherToken)])
      expect(reply.status).toBe(404);
    expect(home.deliveries).toEqual([]);
  });

  test.each([
    [["read"], 403],
    [["publish"], 403],
    [["manage"], 200],
  ])("with a token that may %s is answered with %d", async (verbs, status) => {
    const home = await createTestServer();
    const id = await create(home, "https://e.example/x");
    const made = await home.ask("POST", "/v2/tokens", { body: JSON.stringify({ verbs }) });
    expect(made.status, JSON.stringify(made.body)).toBe(201);
    expect((await run(home, id, made.body.token)).status).toBe(status);
  });
});

describe("the next times of a schedule", () => {
  test("are five, the next firing first", async () => {
    const home = await createTestServer();
    const id = await create(home, "https://e.example/x");
    const { nextScheduleTime, nextTimes } = await read(home, id);
    expect(nextTimes).toEqual([5, 10, 15, 20, 25].map((minutes) => testTime + minutes * minute));
    expect(nextScheduleTime).toBe(nextTimes[0]);
    await come(home, testTime + 5 * minute);
    expect((await read(home, id)).nextTimes[0]).toBe(testTime + 10 * minute);
  });

  test("begin with a late firing, which happens once", async () => {
    const home = await createTestServer();
    const id = await create(home, "https://e.example/x");
    home.clock.now = testTime + 12 * minute;
    expect((await read(home, id)).nextTimes).toEqual(
      [5, 15, 20, 25, 30].map((minutes) => testTime + minutes * minute),
    );
  });

  test("are absent while the schedule is paused, and in the list", async () => {
    const home = await createTestServer();
    const id = await create(home, "https://e.example/x");
    const [listed] = (await home.ask("GET", "/v2/schedules")).body;
    expect(listed).not.toHaveProperty("nextTimes");
    await home.ask("POST", `/v2/schedules/${id}/pause`);
    expect(await read(home, id)).not.toHaveProperty("nextTimes");
  });
});
