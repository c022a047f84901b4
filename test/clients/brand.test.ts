import { afterAll, beforeAll, expect, test } from "vitest";
import type { ClientTestServer } from "./clientTestServer.ts";
import { startDestination } from "../server/waypost.ts";
import { startClientTestServer, startVerifyingDestination } from "./clientTestServer.ts";

let house: ClientTestServer;
beforeAll(async () => {
  house = await startClientTestServer("SQLite", { brand: "upstash" });
});
afterAll(() => house.close());

test.each(["publish", "enqueue/q", "batch", "in"] as const)(
  "the Receiver verifies every message published by %s with --brand",
  async (way) => {
    const newcomer = house.createUser();
    const destination = await startVerifyingDestination(newcomer);
    const ask = (path: string, body: string): Promise<Response> =>
      fetch(`${house.url}/v2/${path}`, {
        method: "POST",
        headers: { authorization: `Bearer ${newcomer.token}` },
        body,
      });
    if (way === "batch")
      await ask("batch", JSON.stringify([{ destination: destination.url, body: "plain" }]));
    else if (way === "in") {
      const source = (await (
        await ask("sources", JSON.stringify({ destination: destination.url }))
      ).json()) as { url: string };
      await fetch(source.url, { method: "POST", body: "plain" });
    } else await ask(`${way}/${destination.url}`, "plain");
    const { headers, body } = await destination.first();
    expect(
      await newcomer.receiver.verify({
        signature: String(headers["upstash-signature"]),
        body: body.toString(),
      }),
    ).toBe(true);
  },
);

test("a publish with neutral names is delivered with neutral names", async () => {
  const newcomer = house.createUser();
  const destination = await startDestination();
  const headers = { authorization: `Bearer ${newcomer.token}`, "svc-retries": "0" };
  await fetch(`${house.url}/v2/publish/${destination.url}`, { method: "POST", headers });
  await destination.until(({ length }) => length > 0);
  const [arrival] = destination.arrivals;
  expect(
    Object.keys(arrival?.headers ?? {}).filter(
      (name) => /^(svc|upstash)-/.test(name) && !name.startsWith("svc-"),
    ),
  ).toEqual([]);
  expect(arrival?.headers).toHaveProperty("svc-signature");
});
