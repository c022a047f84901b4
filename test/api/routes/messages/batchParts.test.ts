import { expect, test } from "vitest";
import { Refusal } from "../../../../src/engine/core/values/errors.ts";
import { createTestServer } from "../../testServer.ts";

test("a refusal of a later part of a long batch names the messages that were not stored", async () => {
  const server = await createTestServer();
  const { execute } = server.store;
  const sizes: number[] = [];
  const lists: unknown[] = [];
  server.store.execute = ((name: string, input: { inputs: unknown[] }, ...rest: []) => {
    if (name !== "publish") return execute(name as never, input as never, ...rest);
    sizes.push(input.inputs.length);
    if (lists.length === 1 && sizes.length === 6)
      throw new Refusal("unavailable", "storage unavailable: nothing was stored; retry later");
    return execute(name as never, input as never, ...rest);
  }) as never;
  const body = JSON.stringify(Array.from({ length: 300 }, () => ({ destination: "https://e.example" })));
  const whole = await server.ask("POST", "/v2/batch", { body });
  expect([whole.status, (whole.body as unknown[]).length, sizes]).toEqual([200, 300, [128, 128, 44]]);
  lists.push(whole);
  const part = await server.ask("POST", "/v2/batch", { body });
  expect(part).toMatchObject({
    status: 503,
    body: {
      error:
        "messages 257 to 300 of the list: storage unavailable: nothing was stored; retry later; the " +
        "earlier messages were processed",
    },
  });
});
