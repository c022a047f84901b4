import { createServer as createPlainServer, type AddressInfo } from "node:net";
import { describe, expect, onTestFinished, test } from "vitest";
import { createLongWork, systemClock } from "../../../src/engine/clock/clock.ts";
import { createDeliver } from "../../../src/engine/delivery/deliver.ts";
import { createEgress } from "../../../src/engine/delivery/http/egress.ts";
import { makeDelivery, httpDestination, createTestDeliver, rawDestination } from "./http/destination.ts";

describe("aborting", () => {
  test("ends one call and closes only its connection", async () => {
    let open = 0;
    const port = await rawDestination((socket) => {
      open++;
      socket.resume();
      socket.on("close", () => open--);
    });
    const deliver = createTestDeliver();
    const [first, ...others] = [1, 2, 3].map(() => deliver(makeDelivery(`http://127.0.0.1:${port}/`)));
    await expect.poll(() => open).toBe(3);
    first?.abort();
    expect(await first?.outcome).toMatchObject({ status: null, error: "aborted" });
    await expect.poll(() => open).toBe(2);
    for (const call of others) call.abort();
    expect((await Promise.all(others.map(({ outcome }) => outcome))).map(({ error }) => error)).toEqual([
      "aborted",
      "aborted",
    ]);
    await expect.poll(() => open).toBe(0);
  });

  test.each([
    ["at once", async () => undefined],
    ["before there is a connection", () => new Promise<void>((resolve) => process.nextTick(resolve))],
  ])("%s sends nothing", async (_when, moment) => {
    const received: string[] = [];
    const port = await httpDestination(({ url = "" }, response) => {
      received.push(url);
      response.end();
    });
    const deliver = createTestDeliver();
    const call = deliver(makeDelivery(`http://127.0.0.1:${port}/aborted`));
    await moment();
    call.abort();
    expect(await call.outcome).toMatchObject({ host: `127.0.0.1:${port}`, status: null, error: "aborted" });
    // Anything that was sent would have arrived before this.
    expect((await deliver(makeDelivery(`http://127.0.0.1:${port}/other`)).outcome).status).toBe(200);
    expect(received).toEqual(["/other"]);
  });

  test("after the end changes nothing", async () => {
    const port = await httpDestination((_incoming, response) => response.end());
    const call = createTestDeliver()(makeDelivery(`http://127.0.0.1:${port}/`));
    expect((await call.outcome).status).toBe(200);
    call.abort();
    expect((await call.outcome).status).toBe(200);
  });

  test("ends running and later calls when the connections are closed", async () => {
    const server = createPlainServer();
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => void server.close());
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    const { deliver, close } = createDeliver({
      egress: createEgress({ allow: ["127.0.0.1"] }),
      clock: systemClock,
      longWork: createLongWork(),
      limits: { responseBytes: 10, maxBody: 100, connectTimeout: 1_000, connectionsPerOrigin: 2 },
      region: "US-EAST-1",
      newId: (kind) => kind,
    });
    const running = [1, 2, 3, 4].map(() => deliver(makeDelivery(url)).outcome);
    await new Promise((resolve) => server.once("connection", resolve));
    await close();
    expect((await Promise.all(running)).map(({ error }) => error)).toEqual(running.map(() => "aborted"));
    expect((await deliver(makeDelivery(url)).outcome).error).toBe("aborted");
  });
});
