import { limits as bounds } from "../../../../src/engine/core/values/limits.ts";
import { createServer as createHttpServer, type IncomingMessage, type RequestListener } from "node:http";
import { createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { onTestFinished } from "vitest";
import { noBytes, type HeaderList } from "../../../../src/engine/core/values/basics.ts";
import { type Delivery } from "../../../../src/engine/core/model/delivery.ts";
import { type StoredMessage } from "../../../../src/engine/core/model/message.ts";
import { type Outcome } from "../../../../src/engine/core/model/attempt.ts";
import { defaultCallback } from "../../../../src/engine/core/deadLetters/overrides.ts";
import { createLongWork, systemClock } from "../../../../src/engine/clock/clock.ts";
import type { HttpRequest } from "../../../../src/engine/delivery/http/connection.ts";
import { ConnectionPool, type ConnectionPoolOptions } from "../../../../src/engine/delivery/http/pool.ts";
import { createDeliver, type Deliver, type DeliverOptions } from "../../../../src/engine/delivery/deliver.ts";
import { createEgress, type EgressOptions } from "../../../../src/engine/delivery/http/egress.ts";
import type { Resolve } from "../../../../src/engine/delivery/http/dns.ts";

/** Listens on loopback until the test ends, then closes every connection. Returns the port. */
async function listen(server: Server): Promise<number> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    sockets.forEach((socket) => socket.destroy());
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

/** Starts an HTTP destination. Returns the port. */
export const httpDestination = (listener: RequestListener): Promise<number> =>
  listen(createHttpServer(listener));

/** Starts a destination that controls its raw connections. Returns the port. */
export const rawDestination = (onConnection: (socket: Socket) => void): Promise<number> =>
  listen(createServer(onConnection));

/** Starts a destination that sends these bytes after a request. The connection stays open. */
export const scriptedDestination = (...texts: string[]): Promise<number> =>
  rawDestination((socket) =>
    socket.once("data", () => texts.forEach((text) => socket.write(text, "latin1"))),
  );

/** Returns the whole body of a request. */
export async function readBody(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

/** Returns a connection pool that is closed when the test ends. */
export function createConnections(options: Omit<ConnectionPoolOptions, "longWork">): ConnectionPool {
  const connections = new ConnectionPool({ ...options, longWork: createLongWork() });
  onTestFinished(() => connections.close());
  return connections;
}

/** A response with its body as text. */
export type ReceivedResponse = { status: number; headers: HeaderList; body: string };

/** Sends a request and returns its response. Rejects with the error of the request. */
export function ask(
  connections: ConnectionPool,
  url: string,
  request: Partial<HttpRequest> = {},
): Promise<ReceivedResponse> {
  return new Promise((resolve, reject) => {
    const heard: ReceivedResponse = { status: 0, headers: [], body: "" };
    connections.send(new URL(url), {
      request: { method: "POST", path: "/", headers: [], body: [], ...request },
      onSent: () => undefined,
      onResponse: (status, fields) => Object.assign(heard, { status, headers: fields() }),
      onBody: (bytes) => void (heard.body += bytes.toString("latin1")),
      onEnd: () => resolve(heard),
      onFailure: reject,
    });
  });
}

/** The key that signs the deliveries of `makeDelivery`. */
export const signingKey = "sig_test";

/** Returns a delivery of a message to a URL. */
export function makeDelivery(url: string, changes: Partial<StoredMessage> = {}, attempt = 0): Delivery {
  const message: StoredMessage = {
    account: "acc",
    id: "msg_1",
    brand: "svc",
    url,
    method: "POST",
    headers: [],
    body: noBytes,
    retries: 3,
    retryDelay: null,
    timeout: 10_000,
    flowControl: null,
    // With a callback the response is kept.
    callback: defaultCallback("https://shop.example/"),
    failureCallback: null,
    deduplication: null,
    group: null,
    endpoint: null,
    queue: null,
    scheduleId: null,
    labels: [],
    redaction: null,
    callerIp: null,
    reportsOn: null,
    createdAt: 0,
    notBefore: 0,
    startedAtOnce: true,
    ...changes,
  };
  return { message, attempt, signingKey };
}

/** The limits and rules of a deliverer that a test changes. */
export type Setup = Partial<DeliverOptions["limits"]> & {
  allow?: string[];
  resolve?: Resolve;
  newId?: DeliverOptions["newId"];
  egress?: Partial<EgressOptions>;
};

/** Returns a `deliver` that may call loopback. It is closed when the test ends. */
export function createTestDeliver({
  allow = ["127.0.0.0/8", "::1/128"],
  resolve,
  newId = (kind) => `${kind}_id`,
  egress,
  ...limits
}: Setup = {}): Deliver {
  const { deliver, close } = createDeliver({
    egress: createEgress({ allow, ...(resolve ? { resolve } : {}), ...egress }),
    clock: systemClock,
    longWork: createLongWork(),
    limits: {
      responseBytes: 1_000,
      maxBody: bounds.messageBytes,
      connectTimeout: 2_000,
      connectionsPerOrigin: 10,
      ...limits,
    },
    region: "EU-CENTRAL-1",
    newId,
  });
  onTestFinished(close);
  return deliver;
}

/** Like `createTestDeliver`, but returns only the outcome. */
export function start(setup: Setup = {}): (delivery: Delivery) => Promise<Outcome> {
  const deliver = createTestDeliver(setup);
  return (delivery) => deliver(delivery).outcome;
}

/** Delivers one message and returns the outcome. */
export const call = (
  url: string,
  changes: Partial<StoredMessage> = {},
  setup: Setup = {},
): Promise<Outcome> => start(setup)(makeDelivery(url, changes));
/** A self-signed certificate for `shop.test`. It protects nothing. */
export const certificate = {
  key: `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgWArMH7ZJJFedQ33Q
yhnmz5ZX+tQskK23NgLaiGAzesmhRANCAARJoONBMO8Kxrdzpf8njRPKObBBtSwN
3CggCpuNjSYxfaNO6cmi1ZbIPZ6P8dAd8boNedJ/K9gbjFthwAEI2IHy
-----END PRIVATE KEY-----`,
  cert: `-----BEGIN CERTIFICATE-----
MIIBlTCCATugAwIBAgIUFMXbk7lcjWVX5DvxzUJMTnYsOG4wCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJc2hvcC50ZXN0MCAXDTI2MTEyMDExMDcxNVoYDzIxMjYxMDI3
MTEwNzE1WjAUMRIwEAYDVQQDDAlzaG9wLnRlc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAARJoONBMO8Kxrdzpf8njRPKObBBtSwN3CggCpuNjSYxfaNO6cmi1ZbI
PZ6P8dAd8boNedJ/K9gbjFthwAEI2IHyo2kwZzAdBgNVHQ4EFgQUlhf/6FZYiGbs
HQxto/3aGuIkKvkwHwYDVR0jBBgwFoAUlhf/6FZYiGbsHQxto/3aGuIkKvkwDwYD
VR0TAQH/BAUwAwEB/zAUBgNVHREEDTALgglzaG9wLnRlc3QwCgYIKoZIzj0EAwID
SAAwRQIgSCcnjcsWSJT7ilOcutSu5lTayeG4kD2SIR527ybrbY4CIQD8KUXlauYz
hKNubiarck7HLdGT7B9sS9Zz4ZZTee5jzw==
-----END CERTIFICATE-----`,
};
