import { hash } from "node:crypto";
import type { WorkflowContext } from "@upstash/workflow";
import { expect, test } from "vitest";
import type { WorkflowUser } from "./workflowTestServer.ts";
import { waitForCount, waitForEnd, waitForResult } from "./workflowTestServer.ts";

const megabyte = 1024 * 1024;
const text = (size: number): string =>
  "waypost ü€ ".repeat(Math.ceil(size / 14)).slice(0, Math.floor((size * 11) / 14));

/** Tests of histories that are too long to be sent with each call, so that the endpoint fetches them. */
export function large(createUser: () => WorkflowUser): void {
  test("a payload of 5 MiB and results arrive complete", { tags: "long" }, async () => {
    const user = createUser();
    const payload = text(5 * megabyte);
    const other = user.answer(() => new Response(text(megabyte)));
    const work = user.serve(async (context: WorkflowContext<string>) => {
      const big = await context.run("big", () => context.requestPayload.slice(0, 2 * megabyte));
      const [called, length] = await Promise.all([
        context.call<string>("call", { url: other.url }),
        context.run("measure", () => context.requestPayload.length + big.length),
      ]);
      return {
        length,
        called: called.body.length,
        hash: hash("sha256", context.requestPayload),
        same: payload.startsWith(big),
      };
    });
    const run = await user.workflows.trigger({ url: work.url, body: payload });
    expect(await waitForResult(user, run)).toEqual({
      length: payload.length + 2 * megabyte,
      called: text(megabyte).length,
      hash: hash("sha256", payload),
      same: true,
    });
    // None of the calls had the history.
    expect(await waitForCount(work, 7)).toBe(7);
    expect(work.calls.map(({ body }) => body.length).filter((length) => length > 3 * megabyte)).toEqual([]);
    expect(work.calls[0]?.body).toBe("");
  });

  test("a failure function gets a payload of any size", async () => {
    const user = createUser();
    const payload = text(3 * megabyte);
    const told: boolean[] = [];
    const work = user.serve(
      (context: WorkflowContext<string>) =>
        context.run("fail", () => {
          throw new Error("broken");
        }),
      { failureFunction: ({ context }) => void told.push(context.requestPayload === payload) },
    );
    await waitForEnd(user, await user.workflows.trigger({ url: work.url, body: payload, retries: 0 }));
    await waitForCount(work, 2);
    expect(told).toEqual([true]);
  });
}
