import type { AddressInfo } from "node:net";
import { createServer as createSecureServer } from "node:https";
import { createServer as createTlsServer, getCACertificates, setDefaultCACertificates } from "node:tls";
import { describe, expect, onTestFinished, test } from "vitest";
import type { Resolve } from "../../../src/engine/delivery/http/dns.ts";
import { call, certificate, makeDelivery, rawDestination, start } from "./http/destination.ts";

describe("over TLS", () => {
  async function secureDestination(): Promise<{ port: number; names: string[] }> {
    const names: string[] = [];
    const server = createTlsServer(
      { ...certificate, SNICallback: (name, answer) => (names.push(name), answer(null)) },
      (socket) => socket.end("HTTP/1.1 200 OK\r\n\r\n"),
    );
    server.on("tlsClientError", () => {});
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => void server.close());
    return { port: (server.address() as AddressInfo).port, names };
  }

  test("a self-signed certificate is refused, and the handshake names the host", async () => {
    const { port, names } = await secureDestination();
    const outcome = await call(`https://shop.test:${port}/`, {}, { resolve: async () => ["127.0.0.1"] });
    expect(outcome).toMatchObject({ status: null, error: "TLS problem: DEPTH_ZERO_SELF_SIGNED_CERT" });
    expect(names).toEqual(["shop.test"]);
  });

  test("a certificate is checked against the name, not against the address", async () => {
    const trusted = getCACertificates("default");
    onTestFinished(() => setDefaultCACertificates(trusted));
    setDefaultCACertificates([certificate.cert]);
    const { port } = await secureDestination();
    const resolve: Resolve = async () => ["127.0.0.1"];
    expect(await call(`https://shop.test:${port}/`, {}, { resolve })).toMatchObject({
      status: 200,
      error: null,
    });
    const failing = createTlsServer(certificate, (socket) =>
      socket.end("HTTP/1.1 500 Failed\r\nContent-Length: 0\r\n\r\n"),
    );
    await new Promise<void>((done) => failing.listen(0, "127.0.0.1", done));
    onTestFinished(() => void failing.close());
    const failed = await call(
      `https://shop.test:${(failing.address() as AddressInfo).port}/`,
      {},
      { resolve },
    );
    expect(failed.timing?.opening).toEqual({
      lookup: expect.any(Number),
      tcp: expect.any(Number),
      tls: expect.any(Number),
    });
    expect((await call(`https://other.test:${port}/`, {}, { resolve })).error).toBe(
      "TLS problem: ERR_TLS_CERT_ALTNAME_INVALID",
    );
  });

  test("requests and responses of any size share one connection and arrive unchanged", async () => {
    const trusted = getCACertificates("default");
    onTestFinished(() => setDefaultCACertificates(trusted));
    setDefaultCACertificates([certificate.cert]);
    let opened = 0;
    const server = createSecureServer(certificate, (incoming, response) => {
      incoming.pipe(
        response.writeHead(
          200,
          incoming.headers["x-in"] === "chunks"
            ? {}
            : { "Content-Length": incoming.headers["content-length"] ?? "0" },
        ),
      );
    });
    server.on("secureConnection", () => opened++);
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => void server.close());
    const deliver = start({ responseBytes: 2_000_000, resolve: async () => ["127.0.0.1"] });
    for (const size of [1, 16_384, 16_385, 1_000_000]) {
      const body = Buffer.from(Array.from({ length: size }, (_none, at) => (at * 31) % 256));
      for (const how of ["chunks", "length"]) {
        const url = `https://shop.test:${(server.address() as AddressInfo).port}/`;
        const outcome = await deliver(makeDelivery(url, { body, headers: [["X-In", how]] }));
        expect(outcome).toMatchObject({ status: 200, error: null });
        expect(Buffer.compare(outcome.body, body)).toBe(0);
      }
    }
    expect(opened).toBe(1);
  });

  test.each([
    "HTTP/1.1 400 Bad Request\r\n\r\n",
    "220 mail.example ready for what you have to say\r\n",
    "SSH-2.0-server\r\n",
  ])("a destination that does not speak TLS is reported as such: %j", async (answer) => {
    const port = await rawDestination((socket) => socket.once("data", () => socket.end(answer)));
    expect((await call(`https://127.0.0.1:${port}/`)).error).toMatch(
      new RegExp(
        "^TLS problem: the destination does not speak TLS on this port " +
          "\\(ERR_SSL_\\w+\\); use http:// or another port$",
      ),
    );
  });
});
