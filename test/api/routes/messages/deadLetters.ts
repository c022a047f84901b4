import { expect } from "vitest";
import type { Outcome } from "../../../../src/core/model/message.ts";
import { house } from "../../house.ts";
import type { House } from "../../house.ts";

/** A message that was published and failed for good. Answers its id. */
export async function fail(
  home: House,
  url: string,
  {
    headers = {},
    body = "b",
    outcome = { status: 500 },
  }: { headers?: Record<string, string>; body?: string; outcome?: Partial<Outcome> } = {},
) {
  home.clock.now += 1_000;
  const { body: reply } = await home.ask("POST", `/v2/publish/${url}`, {
    headers: { ...("upstash-retries" in headers ? {} : { "svc-retries": "0" }), ...headers },
    body,
  });
  await home.settle(home.delivery(), outcome);
  return String(reply.messageId);
}

/** A page of the dead letter queue. */
export const listed = async ({ ask }: House, query = "") => {
  const { status, body } = await ask("GET", `/v2/dlq${query}`);
  expect(status).toBe(200);
  return body as { messages: { messageId: string; dlqId: string; url: string }[]; cursor?: string };
};

/** Three dead letters: a and b to one URL, c to another. */
export async function three() {
  const home = await house();
  const a = await fail(home, "https://one.example", { headers: { "svc-label": "x" } });
  const b = await fail(home, "https://one.example", { outcome: { status: 404 } });
  const c = await fail(home, "https://two.example", { headers: { "svc-label": "x,y" }, outcome: { error: "connection refused" } });
  const names = new Map([
    [a, "a"],
    [b, "b"],
    [c, "c"],
  ]);
  const { messages } = await listed(home);
  return { home, ids: messages.map(({ dlqId }) => dlqId), messageIds: { a, b, c }, nameOf: (id: string) => names.get(id) ?? "?" };
}
