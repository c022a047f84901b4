// @module-tag long
import { describe, expect, test } from "vitest";
import { eventually } from "./clientTestServer.ts";
import type { WorkflowUser } from "./workflowTestServer.ts";
import { ask, waitForResult, shareWorkflowServer } from "./workflowTestServer.ts";

const password = "operator-password";

/** The published packages, unmodified, with an account above its storage quota. */
describe.each(["SQLite", "PostgreSQL"] as const)("on %s", (store) => {
  const house = shareWorkflowServer(store, { WAYPOST_OPERATOR_PASSWORD: password });

  const setQuota = async ({ token }: WorkflowUser, storageBytes: number): Promise<void> => {
    const { UserID } = JSON.parse(Buffer.from(token, "base64").toString()) as { UserID: string };
    const headers = { authorization: `Basic ${Buffer.from(`operator:${password}`).toString("base64")}` };
    const body = JSON.stringify({ limits: { storageBytes } });
    expect(
      (await fetch(`${house.url}/v2/admin/accounts/${UserID}`, { method: "PATCH", headers, body })).status,
    ).toBe(200);
  };

  test("a run above 125 % of the quota waits, and continues when there is room again", async () => {
    const author = house.createUser();
    const { url } = author.answer(() => new Response("x".repeat(200_000), { status: 500 }));
    let mayGoOn = (): void => undefined;
    let tries = 0;
    const isFull = new Promise<void>((resolve) => (mayGoOn = resolve));
    const work = author.serve(async (context) => {
      await context.run("one", async () => {
        tries++;
        await isFull;
      });
      return context.run("two", () => "done");
    });
    await setQuota(author, 150_000);
    const run = await author.workflows.trigger({ url: work.url, retries: 1_000, retryDelay: "1000" });
    await author.client.publish({ url, body: "fill", retries: 0 });
    // Each accepted message and each attempt of the run stores a little more.
    const pause = () => new Promise((resolve) => void setTimeout(resolve, 500));
    const publish = () =>
      author.client.publish({ url: "https://example.com/later", delay: 3_600, body: "x" });
    const refusal = await eventually(
      () =>
        publish().then(
          () => pause().then(() => null),
          (error: unknown) => error as Error,
        ),
      (error) => error !== null,
    );
    // The packages treat the refusal as a rate limit and do not show the server's message.
    expect(refusal).toMatchObject({ name: "QstashRatelimitError", status: 429 });
    await expect(author.workflows.trigger({ url: work.url })).rejects.toMatchObject({ status: 429 });
    mayGoOn();
    await eventually(
      async () => tries,
      (count) => count > 3,
    );
    expect(work.calls.some(({ status }) => status !== null && status >= 500)).toBe(true);

    const { messages } = (await ask(author, "GET dlq")).body as { messages: { dlqId: string }[] };
    expect(messages).toHaveLength(1);
    expect((await ask(author, `DELETE dlq/${messages[0]?.dlqId}`)).status).toBe(200);
    expect(await waitForResult(author, run)).toBe("done");
    expect(await publish()).toHaveProperty("messageId");
  });
});
