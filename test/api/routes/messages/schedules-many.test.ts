import { describe, expect, test } from "vitest";
import { createTestServer } from "../../testServer.ts";
import type { TestServer, Reply } from "../../testServer.ts";

const every5 = { "svc-cron": "*/5 * * * *" };

type More = { headers?: Record<string, string>; body?: string | Buffer; token?: string };

const post = ({ ask }: TestServer, destination: string, { headers = {}, ...more }: More = {}): Promise<Reply> =>
  ask("POST", `/v2/schedules/${destination}`, { headers: { ...every5, ...headers }, ...more });

async function create(home: TestServer, destination: string, more: More = {}): Promise<string> {
  const { status, body } = await post(home, destination, more);
  expect({ status, body }).toEqual({ status: 200, body: { scheduleId: expect.any(String) } });
  return body.scheduleId;
}

describe("many schedules", () => {
  test("are listed by their ids, all of them, the first bodies too", async () => {
    const home = await createTestServer();
    const ids = Array.from({ length: 23 }, (_, index) => `s${String(index).padStart(2, "0")}`);
    for (const id of ids.toReversed()) await create(home, "https://e.example", { headers: { "svc-schedule-id": id }, body: id });
    const { body } = await home.ask("GET", "/v2/schedules");
    expect(body.map((one: { scheduleId: string; body: string }) => [one.scheduleId, one.body])).toEqual(ids.map((id) => [id, id]));
  });

  test("are read many at a time where they are small, and a few at a time where they are large", { tags: "long" }, async () => {
    const home = await createTestServer();
    const small = Array.from({ length: 1_200 }, (_, index) => `a${index}`);
    const large = ["b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8"];
    for (const id of small) await create(home, "https://e.example", { headers: { "svc-schedule-id": id }, body: id });
    const body = Buffer.alloc(8 * 1024 * 1024, "x");
    for (const id of large) await create(home, "https://e.example", { headers: { "svc-schedule-id": id }, body });
    const pages: number[] = [];
    const { listResources } = home.store.read;
    home.store.read.listResources = async (table, range) => {
      const page = await listResources(table, range);
      pages.push(page.length);
      return page;
    };
    const { body: list } = await home.ask("GET", "/v2/schedules");
    expect(list.map(({ scheduleId }: { scheduleId: string }) => scheduleId)).toEqual([...small, ...large].toSorted());
    // Three of them beside the last small ones, then as many as fit on a page, then none.
    expect(list.filter((one: { body?: string }) => one.body !== undefined)).toHaveLength(small.length + 7);
    expect(pages).toEqual([500, 500, 203, 4, 1, 0]);
  });

  test("are listed without their bodies where these are too many bytes", async () => {
    const home = await createTestServer();
    const ids = ["a", "b", "c", "d", "e", "f"];
    const body = Buffer.alloc(8 * 1024 * 1024, "x");
    for (const id of ids) await create(home, "https://e.example", { headers: { "svc-schedule-id": id }, body });
    const { body: list } = await home.ask("GET", "/v2/schedules");
    expect(list.map((one: { body?: string }) => one.body?.length ?? null)).toEqual([...ids.slice(0, 4).map(() => body.length), null, null]);
  });

  test("are listed page by page where their settings are large, and no page is read before the one before it has left", async () => {
    const home = await createTestServer();
    const callback = { "svc-callback": "https://c.example", "svc-callback-forward-x": "x".repeat(60_000) };
    const ids = Array.from({ length: 200 }, (_, at) => `s${String(at).padStart(3, "0")}`);
    for (const id of ids) await create(home, "https://e.example", { headers: { ...callback, "svc-schedule-id": id } });
    let pages = 0;
    const { listResources } = home.store.read;
    home.store.read.listResources = (table, range) => {
      pages++;
      return listResources(table, range);
    };
    const { body: list } = await home.ask("GET", "/v2/schedules");
    expect(list.map(({ scheduleId }: { scheduleId: string }) => scheduleId)).toEqual(ids);
    expect(pages).toBe(4);
  });

  test("are refused beyond the limit, except in the place of another", async () => {
    const home = await createTestServer();
    await home.store.execute("changeAccount", { account: "acc_1", change: { limits: { schedules: 1 } } });
    await create(home, "https://e.example", { headers: { "svc-schedule-id": "s" } });
    const error = expect.stringMatching(
      /^schedules: there are 1, and the limit is 1; delete some that are not needed; it is the limit of this account/,
    );
    expect(await post(home, "https://e.example")).toMatchObject({ status: 412, body: { error } });
    await create(home, "https://e.example", { headers: { "svc-schedule-id": "s" } });
  });
});
