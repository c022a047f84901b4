import { createServer as createSecureServer } from "node:https";
import type { AddressInfo } from "node:net";
import type { TLSSocket } from "node:tls";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import type { EgressOptions } from "../../../../src/engine/delivery/http/egress.ts";
import type { Resolve } from "../../../../src/engine/delivery/http/dns.ts";
import { forwardProxy } from "../../../../src/settings/rows/settingValues.ts";
import { authority, clientCertificate, serverCertificate } from "./authority.ts";
import { createTestDeliver, httpDestination, makeDelivery, start } from "./destination.ts";
import { startForwardProxy } from "./forwardProxy.ts";

const local: Resolve = async () => ["127.0.0.1"];
const trusting = { authorities: [authority], clients: new Map() };

/** Starts a destination with a certificate of the test authority. `shown`: the clients' certificates. */
async function secureDestination({ requiresClient = false } = {}) {
  const shown: unknown[] = [];
  const options = {
    ...serverCertificate,
    ca: [authority],
    requestCert: true,
    rejectUnauthorized: requiresClient,
  };
  const server = createSecureServer(options, (incoming, response) => {
    shown.push((incoming.socket as TLSSocket).getPeerCertificate().subject?.CN);
    incoming.pipe(response);
  });
  server.on("tlsClientError", () => undefined);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  return { port: (server.address() as AddressInfo).port, shown };
}

const through = (port: number, credentials = ""): Partial<EgressOptions> => ({
  proxy: forwardProxy.parse(`http://${credentials}127.0.0.1:${port}`),
});

describe("certificates", () => {
  test("of a private authority are trusted if it is named, in addition to public ones", async () => {
    const { port } = await secureDestination();
    const url = `https://shop.test:${port}/`;
    expect((await start({ resolve: local })(makeDelivery(url))).error).toMatch(/^TLS problem: /);
    const deliver = start({ resolve: local, egress: { certificates: trusting } });
    expect(await deliver(makeDelivery(url, { body: Buffer.from("hello") }))).toMatchObject({ status: 200 });
    expect((await deliver(makeDelivery(`https://other.test:${port}/`))).error).toBe(
      "TLS problem: ERR_TLS_CERT_ALTNAME_INVALID",
    );
  });

  test("of a client are shown to their host alone", async () => {
    const strict = await secureDestination({ requiresClient: true });
    const lax = await secureDestination();
    const clients = new Map([["shop.test", clientCertificate]]);
    const deliver = start({
      resolve: local,
      egress: { certificates: { authorities: [authority], clients } },
    });
    expect(await deliver(makeDelivery(`https://shop.test:${strict.port}/`))).toMatchObject({ status: 200 });
    expect((await deliver(makeDelivery(`https://a.shop.test:${strict.port}/`))).status).toBeNull();
    expect(await deliver(makeDelivery(`https://a.shop.test:${lax.port}/`))).toMatchObject({ status: 200 });
    expect([strict.shown, lax.shown]).toEqual([["client"], [undefined]]);
  });
});

describe("through a proxy", () => {
  test("the proxy gets the name, and requests share one tunnel over TLS", async () => {
    const { port, shown } = await secureDestination();
    const clients = new Map([["shop.test", clientCertificate]]);
    const proxy = await startForwardProxy({ to: port, credentials: "queue:p@ss word" });
    const certificates = { authorities: [authority], clients };
    const deliver = start({
      responseBytes: 2_000_000,
      resolve: () => expect.unreachable("a name was looked up"),
      egress: { certificates, ...through(proxy.port, "queue:p%40ss%20word@") },
    });
    for (const size of [0, 100, 1_000_000]) {
      const body = Buffer.alloc(size, "abcdefg");
      const outcome = await deliver(makeDelivery("https://shop.test/", { body }));
      expect(outcome).toMatchObject({ status: 200, error: null });
      expect(Buffer.compare(outcome.body, body)).toBe(0);
    }
    expect(proxy.tunnels).toEqual(["shop.test:443"]);
    expect(shown).toEqual(["client", "client", "client"]);
  });

  test("a URL without TLS goes through a tunnel as well, unchanged", async () => {
    const seen: (string | undefined)[] = [];
    const port = await httpDestination((incoming, response) => {
      seen.push(`${incoming.headers.host} ${incoming.url} ${incoming.headers["proxy-authorization"]}`);
      incoming.pipe(response);
    });
    const proxy = await startForwardProxy({ to: port, credentials: "queue:secret" });
    const deliver = start({ responseBytes: 200_000, egress: through(proxy.port, "queue:secret@") });
    for (const size of [3, 100_000]) {
      const body = Buffer.alloc(size, "abcdefg");
      const outcome = await deliver(makeDelivery("http://shop.test:8081/a//b?c", { body }));
      expect(Buffer.compare(outcome.body, body)).toBe(0);
    }
    expect(proxy.tunnels).toEqual(["shop.test:8081"]);
    expect(seen).toEqual(Array(2).fill("shop.test:8081 /a//b?c undefined"));
  });

  test.each(["127.0.0.1", "2130706433", "[::ffff:10.0.0.1]", "169.254.169.254", "localhost", "a.localhost"])(
    "a URL with the private address %s is refused, and the proxy is not asked",
    async (host) => {
      const proxy = await startForwardProxy({ to: 1 });
      const deliver = start({ allow: [], egress: through(proxy.port) });
      expect((await deliver(makeDelivery(`http://${host}/`))).error).toMatch(/ is not public: /);
      expect(proxy.tunnels).toEqual([]);
    },
  );

  test("variables of the environment change nothing", async () => {
    const proxy = await startForwardProxy({ to: 1 });
    for (const name of ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"])
      vi.stubEnv(name, `http://127.0.0.1:${proxy.port}`);
    vi.stubEnv("NODE_USE_ENV_PROXY", "1");
    onTestFinished(() => void vi.unstubAllEnvs());
    const port = await httpDestination((_incoming, response) => void response.end());
    expect(await start()(makeDelivery(`http://127.0.0.1:${port}/`))).toMatchObject({ status: 200 });
    expect(proxy.tunnels).toEqual([]);
  });

  const established = "HTTP/1.1 200 OK\r\n\r\n";
  test.each<[what: string, answer: string | null, error: string]>([
    [
      "refuses",
      "HTTP/1.1 403 Forbidden\r\n\r\n",
      "the proxy refused to connect to the destination (status 403)",
    ],
    [
      "cannot connect",
      "HTTP/1.1 502 Bad\r\n\r\n",
      "the proxy cannot connect to the destination (status 502)",
    ],
    ["closes the connection", null, "the proxy closed the connection"],
    ["ends in the middle of its response", "HTTP/1.1 200 OK\r\nX: ", "the proxy closed the connection"],
    ["speaks another protocol", "220 mail.example\r\n\r\n", "the proxy does not speak HTTP/1.1"],
    [
      "sends endless headers",
      `HTTP/1.1 200 OK\r\nX: ${"a".repeat(17_000)}`,
      "the proxy sent headers larger than 16 KiB",
    ],
    [
      "sends more than a response",
      `${established}HTTP/1.1 200 OK\r\n\r\n`,
      "the proxy sent more than a response",
    ],
  ])("a proxy that %s is named in the error", async (_what, answer, error) => {
    const proxy = await startForwardProxy({ answer: (socket) => void socket.end(answer ?? "") });
    for (const scheme of ["http", "https"]) {
      const deliver = start({ egress: through(proxy.port) });
      expect(await deliver(makeDelivery(`${scheme}://shop.test/`))).toMatchObject({ status: null, error });
    }
  });

  test("a proxy that refuses the credentials, or that does not run, is named in the error", async () => {
    const proxy = await startForwardProxy({ to: 1, credentials: "queue:right" });
    const wrong = start({ egress: through(proxy.port, "queue:wrong@") });
    expect((await wrong(makeDelivery("https://shop.test/"))).error).toBe(
      "the proxy does not accept the credentials of this server (status 407)",
    );
    const none = start({ egress: through(1) });
    expect((await none(makeDelivery("https://shop.test/"))).error).toBe(
      "the proxy cannot be reached: ECONNREFUSED",
    );
  });

  test("a proxy that hangs ends with the connect timeout, before and after its response", async () => {
    for (const answer of ["", established]) {
      const proxy = await startForwardProxy({
        answer: (socket) => void socket.write(answer || "HTTP/1.1 2"),
      });
      const deliver = start({ connectTimeout: 100, egress: through(proxy.port) });
      expect((await deliver(makeDelivery("https://shop.test/"))).error).toBe(
        "connecting through the proxy timed out",
      );
      await expect.poll(() => proxy.open.size).toBe(0);
    }
  });

  test("a tunnel that breaks half way fails the attempt, and the next attempt opens another", async () => {
    const half = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf";
    const port = await httpDestination((_incoming, response) => void response.end("whole"));
    const working = await startForwardProxy({ to: port });
    const broken = await startForwardProxy({
      answer: (socket) => {
        socket.write(established);
        socket.once("data", () => socket.end(half));
      },
    });
    const outcome = await start({ egress: through(broken.port) })(makeDelivery("http://shop.test/"));
    expect(outcome.error).toBe("connection lost before the response was complete");
    const deliver = start({ egress: through(working.port) });
    for (let at = 0; at < 2; at++) {
      expect(await deliver(makeDelivery("http://shop.test/"))).toMatchObject({ status: 200, error: null });
      for (const socket of working.open) socket.destroy();
      await expect.poll(() => working.open.size).toBe(0);
    }
    expect(working.tunnels).toHaveLength(2);
  });

  test("an attempt that is given up closes its socket to the proxy", async () => {
    const proxy = await startForwardProxy({ answer: () => undefined });
    const call = createTestDeliver({ egress: through(proxy.port) })(makeDelivery("https://shop.test/"));
    await expect.poll(() => proxy.tunnels).toHaveLength(1);
    call.abort();
    expect((await call.outcome).error).toBe("aborted");
    await expect.poll(() => proxy.open.size).toBe(0);
  });
});
