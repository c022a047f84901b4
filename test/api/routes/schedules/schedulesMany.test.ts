import { describe, expect, test } from "vitest";
import { createTestServer } from "../../testServer.ts";
import { create, post } from "./scheduleRequests.ts";

describe("many schedules", () => {
  test("are all listed in the order of their ids, with their bodies", async () => {
    const server = await createTestServer();
    const ids = Array.from({ length: 23 }, (_, index) => `s${String(index).padStart(2, "0")}`);
    for (const id of ids.toReversed())
      await create(server, "https://e.example", { headers: { "svc-schedule-id": id }, body: id });
    const { body } = await server.ask("GET", "/v2/schedules");
    expect(body.map((one: { scheduleId: string; body: string }) => [one.scheduleId, one.body])).toEqual(
      ids.map((id) => [id, id]),
    );
  });

  test(
    "are read many at a time if they are small, and few at a time if they are large",
    { tags: "long" },
    async () => {
      const server = await createTestServer();
      const small = Array.from({ length: 1_200 }, (_, index) => `a${index}`);
      const large = ["b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8"];
      for (const id of small)
        await create(server, "https://e.example", { headers: { "svc-schedule-id": id }, body: id });
      const body = Buffer.alloc(8 * 1024 * 1024, "x");
      for (const id of large)
        await create(server, "https://e.example", { headers: { "svc-schedule-id": id }, body });
      const pages: number[] = [];
      const { listResources } = server.store.read;
      server.store.read.listResources = async (table, range) => {
        const page = await listResources(table, range);
        pages.push(page.length);
        return page;
      };
      const { body: list } = await server.ask("GET", "/v2/schedules");
      expect(list.map(({ scheduleId }: { scheduleId: string }) => scheduleId)).toEqual(
        [...small, ...large].toSorted(),
      );
      // Three large schedules with the last small ones, then as many as fit on a page, then none.
      expect(list.filter((one: { body?: string }) => one.body !== undefined)).toHaveLength(small.length + 7);
      expect(pages).toEqual([500, 500, 203, 4, 1, 0]);
    },
  );

  test("are listed without their bodies if these exceed the limit of a page", async () => {
    const server = await createTestServer();
    const ids = ["a", "b", "c", "d", "e", "f"];
    const body = Buffer.alloc(8 * 1024 * 1024, "x");
    for (const id of ids)
      await create(server, "https://e.example", { headers: { "svc-schedule-id": id }, body });
    const { body: list } = await server.ask("GET", "/v2/schedules");
    expect(list.map((one: { body?: string }) => one.body?.length ?? null)).toEqual([
      ...ids.slice(0, 4).map(() => body.length),
      null,
      null,
    ]);
  });

  test("with large settings are listed in pages; each is read after the last one was sent", async () => {
    const server = await createTestServer();
    const callback = { "svc-callback": "https://c.example", "svc-callback-forward-x": "x".repeat(60_000) };
    const ids = Array.from({ length: 200 }, (_, at) => `s${String(at).padStart(3, "0")}`);
    for (const id of ids)
      await create(server, "https://e.example", { headers: { ...callback, "svc-schedule-id": id } });
    let pages = 0;
    const { listResources } = server.store.read;
    server.store.read.listResources = (table, range) => {
      pages++;
      return listResources(table, range);
    };
    const { body: list } = await server.ask("GET", "/v2/schedules");
    expect(list.map(({ scheduleId }: { scheduleId: string }) => scheduleId)).toEqual(ids);
    expect(pages).toBe(4);
  });

  test("are refused beyond the limit, unless they replace another schedule", async () => {
    const server = await createTestServer();
    await server.store.execute("changeAccount", { account: "acc_1", change: { limits: { schedules: 1 } } });
    await create(server, "https://e.example", { headers: { "svc-schedule-id": "s" } });
    const error = expect.stringMatching(
      new RegExp(
        "^schedules: there are 1, and the limit is 1; delete some that are not needed, " +
          "or raise the limit of this account ",
      ),
    );
    expect(await post(server, "https://e.example")).toMatchObject({ status: 412, body: { error } });
    await create(server, "https://e.example", { headers: { "svc-schedule-id": "s" } });
  });
});
