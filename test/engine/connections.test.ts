import { expect, onTestFinished, test } from "vitest";
import { createConnections, type Connections } from "../../src/engine/connections.ts";
import { createEgress } from "../../src/engine/egress.ts";
import { rawDestination } from "./destination.ts";

function start(most = 2): Connections {
  const egress = createEgress({ allow: ["127.0.0.1"], resolve: async () => ["127.0.0.1"] });
  const connections = createConnections({ connect: egress.connector(1_000), connections: most });
  onTestFinished(() => connections.close());
  return connections;
}

const ask = (connections: Connections, origin: string): Promise<unknown> =>
  connections
    .to(origin)
    .request({ path: "/", method: "POST" })
    .then(
      (answer) => answer.body.dump(),
      () => null,
    );

test("an origin has one pool", async () => {
  const connections = start();
  expect(connections.to("http://a.test")).toBe(connections.to("http://a.test"));
  expect(connections.to("http://a.test")).not.toBe(connections.to("http://a.test:81"));
});

test("origins whose connections broke off are forgotten", async () => {
  const port = await rawDestination((socket) => socket.once("data", () => socket.end()));
  const connections = start();
  for (let round = 0; round < 20; round++) {
    const origins = Array.from({ length: 10 }, (_none, at) => `http://s${round}-${at}.test:${port}`);
    await Promise.all(origins.flatMap((origin) => [ask(connections, origin), ask(connections, origin), ask(connections, origin)]));
  }
  expect(connections.count()).toBeLessThan(60);
});

test("origins that are connected are kept", async () => {
  let opened = 0;
  const port = await rawDestination((socket) => {
    opened++;
    socket.on("data", () => socket.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
  });
  const connections = start(1);
  await ask(connections, `http://kept.test:${port}`);
  const kept = connections.to(`http://kept.test:${port}`);
  for (let at = 0; at < 50; at++) connections.to(`http://s${at}.test`);
  expect(connections.to(`http://kept.test:${port}`)).toBe(kept);
  await ask(connections, `http://kept.test:${port}`);
  expect(opened).toBe(1);
});

test("nothing is opened once they are closed", async () => {
  const connections = start();
  await connections.close();
  expect(() => connections.to("http://a.test")).toThrow("closed");
});
