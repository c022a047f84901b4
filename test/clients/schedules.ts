import { expect, test } from "vitest";
import type { TestUser } from "./clientTestServer.ts";

/** Tests schedules with the published client. */
export function schedules(createUser: () => TestUser): void {
  test("a schedule is created, read, listed, paused, resumed and deleted", async () => {
    const { client } = createUser();
    expect(await client.schedules.list()).toEqual([]);
    const { scheduleId, ...more } = await client.schedules.create({
      destination: "https://example.com",
      cron: "0 4 1 1 *",
      body: "yearly",
    });
    expect(scheduleId).toMatch(/^scd_/);
    expect(more).toEqual({});
    const schedule = await client.schedules.get(scheduleId);
    expect(schedule).toMatchObject({
      scheduleId,
      cron: "0 4 1 1 *",
      destination: "https://example.com",
      method: "POST",
      body: "yearly",
      retries: 3,
      isPaused: false,
      createdAt: expect.any(Number),
      nextScheduleTime: expect.any(Number),
      header: { "Content-Type": ["application/json"] },
      callerIp: "127.0.0.1",
      callerIP: "127.0.0.1",
    });
    expect(new Date(schedule.nextScheduleTime ?? 0).toISOString()).toMatch(/-01-01T04:00:00.000Z$/);
    expect(schedule.lastScheduleTime).toBeUndefined();
    // Only a schedule that is read by its id has its next times and its settings.
    const [listed, ...others] = await client.schedules.list();
    expect(others).toEqual([]);
    expect(schedule).toEqual({
      ...listed,
      nextTimes: expect.any(Array),
      settings: expect.any(Object),
    });
    for (let times = 0; times < 2; times++) {
      expect(await client.schedules.pause({ schedule: scheduleId })).toBeUndefined();
      expect((await client.schedules.get(scheduleId)).isPaused).toBe(true);
    }
    for (let times = 0; times < 2; times++) {
      expect(await client.schedules.resume({ schedule: scheduleId })).toBeUndefined();
      expect((await client.schedules.get(scheduleId)).isPaused).toBe(false);
    }
    expect(await client.schedules.delete(scheduleId)).toBeUndefined();
    await expect(client.schedules.get(scheduleId)).rejects.toMatchObject({ status: 404 });
    expect(await client.schedules.list()).toEqual([]);
    await expect(client.schedules.delete(scheduleId)).resolves.toBeUndefined();
  });

  test("all settings of a schedule can be read", async () => {
    const { clientWith } = createUser();
    const client = clientWith({ enableTelemetry: true });
    const { scheduleId } = await client.schedules.create({
      destination: "https://example.com/123/?asdasd=ooo",
      cron: "*/10 * * * * ",
      method: "PUT",
      body: "text",
      delay: 30,
      retries: 5,
      callback: "https://example.com/callback",
      failureCallback: "https://example.com/failure",
      retryDelay: "1000 * retried",
      queueName: "line",
      label: ["mine", "yours"],
      timeout: "1m",
      flowControl: { key: "shop", parallelism: 2, rate: 10, period: "1d" },
      headers: {
        "test-header": "test-value",
        "bypass-tunnel-reminder": "client-test",
        "Content-Type": "application/json",
      },
    });
    expect(await client.schedules.get(scheduleId)).toMatchObject({
      cron: "*/10 * * * *",
      destination: "https://example.com/123/?asdasd=ooo",
      method: "PUT",
      body: "text",
      delay: 30,
      retries: 5,
      callback: "https://example.com/callback",
      failureCallback: "https://example.com/failure",
      retryDelayExpression: "1000 * retried",
      queueName: "line",
      label: "mine",
      labels: ["mine", "yours"],
      flowControlKey: "shop",
      parallelism: 2,
      rate: 10,
      ratePerSecond: 10,
      period: 86_400,
    });
    const { header } = await client.schedules.get(scheduleId);
    expect(header).toEqual({
      "Bypass-Tunnel-Reminder": ["client-test"],
      "Content-Type": ["application/json"],
      "Test-Header": ["test-value"],
    });
    // The queue is created by the first message.
    expect(await client.queue().list()).toEqual([]);
  });

  test("a second schedule with the same id replaces the first completely", async () => {
    const { client } = createUser();
    const scheduleId = "my.own_id-1";
    const first = {
      destination: "https://www.initial.com",
      cron: "*/5 * * * *",
      body: "initial",
      scheduleId,
    };
    expect(await client.schedules.create({ ...first, label: "old", retries: 1 })).toEqual({ scheduleId });
    expect((await client.schedules.get(scheduleId)).destination).toBe("https://www.initial.com");
    expect(
      await client.schedules.create({
        destination: "https://www.updated.com",
        cron: "*/10 * * * *",
        scheduleId,
      }),
    ).toEqual({
      scheduleId,
    });
    const second = await client.schedules.get(scheduleId);
    expect(second).toMatchObject({
      destination: "https://www.updated.com",
      cron: "*/10 * * * *",
      retries: 3,
    });
    expect([second.body, second.label]).toEqual([undefined, undefined]);
    const [listed, ...others] = await client.schedules.list();
    expect(others).toEqual([]);
    expect(second).toEqual({
      ...listed,
      nextTimes: expect.any(Array),
      settings: expect.any(Object),
    });
  });

  test("a schedule may have a time zone and a URL group as its destination", async () => {
    const { client } = createUser();
    await client.urlGroups.addEndpoints({ name: "group", endpoints: [{ url: "https://one.example" }] });
    const { scheduleId } = await client.schedules.create({
      destination: "group",
      cron: "CRON_TZ=America/New_York 0 4 * * *",
    });
    const schedule = await client.schedules.get(scheduleId);
    expect(schedule).toMatchObject({ destination: "group", cron: "CRON_TZ=America/New_York 0 4 * * *" });
    expect([8, 9]).toContain(new Date(schedule.nextScheduleTime ?? 0).getUTCHours());
  });

  test("redacted parts are not shown", async () => {
    const { client } = createUser();
    const redact = { body: true, header: ["X-Key"] } as const;
    const { scheduleId } = await client.schedules.create({
      destination: "https://example.com",
      cron: "0 0 * * *",
      body: "secret",
      headers: { "X-Key": "secret", "X-Open": "open" },
      redact: { body: redact.body, header: [...redact.header] },
    });
    const redacted = expect.stringMatching(/^REDACTED:[0-9a-f]{64}$/);
    expect(await client.schedules.get(scheduleId)).toMatchObject({
      body: redacted,
      header: { "X-Key": [redacted], "X-Open": ["open"] },
    });
    expect(JSON.stringify(await client.schedules.list())).not.toContain("secret");
  });

  test.each([
    ["an invalid cron expression", { cron: "every day" }, 400],
    ["an invalid id", { scheduleId: "no such id" }, 400],
    ["a destination that is not a URL", { destination: "ftp://example.com" }, 400],
    ["an unknown URL group", { destination: "nobody" }, 404],
    ["too many retries", { retries: 1_000_000 }, 412],
  ] as const)("%s is refused", async (_, request, status) => {
    const { client } = createUser();
    const creating = client.schedules.create({
      destination: "https://example.com",
      cron: "0 0 * * *",
      ...request,
    });
    await expect(creating).rejects.toMatchObject({ status });
    expect(await client.schedules.list()).toEqual([]);
  });

  test("an unknown schedule cannot be read, paused or resumed", async () => {
    const { client } = createUser();
    await expect(client.schedules.get("scd_none")).rejects.toMatchObject({ status: 404 });
    await expect(client.schedules.pause({ schedule: "scd_none" })).rejects.toMatchObject({ status: 404 });
    await expect(client.schedules.resume({ schedule: "scd_none" })).rejects.toMatchObject({ status: 404 });
  });
}
