import { expect, test } from "vitest";
import { CommandRunner, makeInput, noon } from "../commandRunner.ts";

test.each([
  ["schedules with 1,000 messages together", { count: 100, size: 0 }, 10],
  ["schedules with 32 MiB of bodies together", { count: 2, size: 4 * 1024 * 1024 }, 4],
  ["at least one schedule", { count: 10, size: 8 * 1024 * 1024 }, 1],
])(
  "if several schedules are due at once, %s fire in one claim, and the others in the next claims",
  async (_, { count, size }, expected) => {
    const broker = await CommandRunner.open();
    const endpoints = Array.from({ length: count }, (_, at) => ({
      name: null,
      url: `https://${at}.example`,
    }));
    broker.memory.tables.urlGroups.set("acme\nshops", {
      account: "acme",
      name: "shops",
      createdAt: noon,
      updatedAt: noon,
      endpoints,
      headers: [],
    });
    const ids = Array.from({ length: 12 }, (_, number) => `many${10 + number}`);
    const { body: _body, ...messageInput } = makeInput({ group: "shops" });
    const body = new Uint8Array(size);
    for (const id of ids)
      await broker.run("createSchedule", { account: "acme", id, cron: "*/5 * * * *", messageInput, body });
    broker.now += 300_000;
    const fired = () =>
      ids.filter((id) => broker.memory.tables.schedules.get(`acme\n${id}`)?.lastAt !== null);
    expect(await broker.run("claim", { limit: 100 })).toMatchObject({ more: true });
    expect(fired()).toEqual(ids.slice(0, expected));
    for (let round = 1; round < ids.length; round++) await broker.run("claim", { limit: 100 });
    expect(fired()).toEqual(ids);
    expect([...broker.memory.tables.storedMessages.values()]).toHaveLength(ids.length * count);
  },
);

test("a body too large for all endpoints of its group is not sent, and other schedules fire", async () => {
  const broker = await CommandRunner.open();
  const ofGroup = (count: number): void => {
    const endpoints = Array.from({ length: count }, (_, at) => ({
      name: null,
      url: `https://${at}.example`,
    }));
    broker.memory.tables.urlGroups.set("acme\nshops", {
      account: "acme",
      name: "shops",
      createdAt: noon,
      updatedAt: noon,
      endpoints,
      headers: [],
    });
  };
  const { body: _body, ...messageInput } = makeInput({ group: "shops" });
  const input = { account: "acme", cron: "*/5 * * * *" };
  await broker.run("createSchedule", {
    ...input,
    id: "large",
    messageInput,
    body: new Uint8Array(8 * 1024 * 1024),
  });
  await broker.run("createSchedule", {
    ...input,
    id: "other",
    messageInput: { ...messageInput, group: null },
    body: new Uint8Array(0),
  });
  const fireAll = async (): Promise<void> => {
    broker.now += 300_000;
    for (let round = 0; round < 2; round++) await broker.run("claim", { limit: 100 });
  };
  const schedule = (id: string) => broker.memory.tables.schedules.get(`acme\n${id}`);
  ofGroup(33);
  await fireAll();
  expect(schedule("large")).toMatchObject({
    lastAt: broker.now,
    lastMessages: [],
    dueAt: broker.now + 300_000,
  });
  expect(schedule("other")?.lastMessages).toHaveLength(1);
  ofGroup(32);
  await fireAll();
  expect(schedule("large")?.lastMessages).toHaveLength(32);
});
