import type { AddressInfo } from "node:net";
import { createServer, getCACertificates, setDefaultCACertificates, type TLSSocket } from "node:tls";
import { expect, onTestFinished, test } from "vitest";
import { LongWork } from "../../../../src/engine/core/node/longWork.ts";
import { elapsed } from "../../../../src/engine/clock/clock.ts";
import { ConnectionPool } from "../../../../src/engine/delivery/http/pool.ts";
import { createEgress } from "../../../../src/engine/delivery/http/egress.ts";
import { ask, certificate } from "./destination.ts";

async function tlsDestination(onConnection: (socket: TLSSocket) => void): Promise<number> {
  const trusted = getCACertificates("default");
  onTestFinished(() => setDefaultCACertificates(trusted));
  setDefaultCACertificates([certificate.cert]);
  const server = createServer({ ...certificate }, onConnection);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}

// TLS delivers what it has decrypted even if the socket is paused, so a response can be complete before its
// connection has its turn.
test.each([16_500, 49_252])(
  "bytes after a response of %d bytes over TLS are not the response to another request",
  async (bytes) => {
    let requests = 0;
    const port = await tlsDestination((socket) => {
      socket.setNoDelay(true).on("error", () => undefined);
      socket.on("data", () => {
        if (requests++ > 0) return void socket.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nreal");
        socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${bytes}\r\n\r\n${"a".repeat(bytes)}`);
        setTimeout(() => socket.write("HTTP/1.1 500 Forged\r\nContent-Length: 6\r\n\r\nforged"), 5);
      });
    });
    const egress = createEgress({ allow: ["127.0.0.1"], resolve: async () => ["127.0.0.1"] });
    const longWork = new LongWork({ soon: (run) => void setTimeout(run, 60), elapsed });
    const connections = new ConnectionPool({ connector: egress.connector(1_000), perOrigin: 1, longWork });
    onTestFinished(() => connections.close());
    expect((await ask(connections, `https://shop.test:${port}/`)).body).toBe("a".repeat(bytes));
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(await ask(connections, `https://shop.test:${port}/`)).toMatchObject({ status: 200, body: "real" });
  },
);
