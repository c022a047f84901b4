import { connect, isIP, type LookupFunction, type Socket } from "node:net";
import type { buildConnector } from "undici";
import type { Millis } from "../../core/values/basics.ts";
import { alarm } from "../../clock/clock.ts";
import { onSocketRead, reportReads, socketReadOptions } from "./connection.ts";

/**
 * A proxy that all deliveries go through. `authorization` is the value of the header `Proxy-Authorization`;
 * null without credentials.
 */
export type ForwardProxy = { hostname: string; port: number; authorization: string | null };

/** Thrown if the proxy did not connect to the destination. The text may be shown to the publisher. */
export class ProxyFailure extends Error {}

/** How tunnels are opened. `timeout` covers the connection to the proxy, its response, and the handshake. */
type TunnelOptions = {
  proxy: ForwardProxy;
  lookup: LookupFunction;
  timeout: Millis;
  /** Begins TLS with the destination, over the socket of the tunnel. */
  secure: buildConnector.connector;
};

/** The largest head of a response of the proxy, in bytes. */
const maxHeadBytes = 16 * 1024;

/**
 * Returns a connector that opens each connection through a proxy, by the method CONNECT (RFC 9110, 9.3.6).
 * The proxy resolves the name of the destination.
 */
export function createTunnelConnector(options: TunnelOptions): buildConnector.connector {
  const { proxy, lookup, timeout, secure } = options;
  return (target, callback) => {
    const isSecure = target.protocol === "https:";
    const socket = connect({
      ...{ host: proxy.hostname, port: proxy.port, lookup, autoSelectFamily: true },
      // TLS reads from the socket by itself.
      ...(isSecure ? {} : socketReadOptions),
    });
    socket.setNoDelay(true).setKeepAlive(true, 60_000);
    const tunnel = new Tunnel(socket, isSecure, (error) => {
      if (error !== null) finish(error, null);
      else if (isSecure) secure({ ...target, httpSocket: socket }, (...result) => finish(...result));
      else finish(null, socket);
    });
    const stopTimeout = alarm(timeout, () =>
      finish(new ProxyFailure("connecting through the proxy timed out"), null),
    );
    let isOver = false;
    const finish = (...[error, opened]: Parameters<buildConnector.Callback>): void => {
      if (isOver) return;
      isOver = true;
      stopTimeout();
      if (error !== null) {
        socket.destroy();
        return callback(error, null);
      }
      // TLS over an open socket ignores `onread`.
      if (isSecure) reportReads(opened);
      callback(null, opened);
    };
    // A caller that gives the attempt up destroys the socket.
    socket.once("close", () => finish(new ProxyFailure(closedText), null));
    tunnel.begin(formatConnect(target, proxy));
    return socket;
  };
}

const closedText = "the proxy closed the connection";

/** Returns the request that asks the proxy for a connection to a destination. */
function formatConnect({ hostname, protocol, port }: buildConnector.Options, proxy: ForwardProxy): string {
  const host = isIP(hostname) === 6 ? `[${hostname}]` : hostname;
  const authority = `${host}:${port === "" ? (protocol === "https:" ? 443 : 80) : port}`;
  const credentials = proxy.authorization === null ? "" : `Proxy-Authorization: ${proxy.authorization}\r\n`;
  return `CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n${credentials}\r\n`;
}

/** The first exchange on a socket to a proxy: the request for a tunnel, and the head of the response. */
class Tunnel {
  readonly #socket: Socket;
  readonly #stopReading: () => void;
  readonly #onResult: (error: Error | null) => void;
  #head = "";

  /** `onResult` may be called again if the socket fails later. */
  constructor(socket: Socket, isSecure: boolean, onResult: (error: Error | null) => void) {
    this.#socket = socket;
    this.#onResult = onResult;
    const take = (bytes: Buffer): void => this.#take(bytes);
    this.#stopReading = isSecure
      ? (socket.on("data", take), () => void socket.pause().off("data", take))
      : onSocketRead(socket, take);
    // The code shows a lack of sockets, which is not a failure of the proxy.
    socket.on("error", ({ code = "" }: NodeJS.ErrnoException) =>
      onResult(
        Object.assign(new ProxyFailure(`the proxy cannot be reached: ${code || "unknown"}`), { code }),
      ),
    );
  }

  begin(request: string): void {
    this.#socket.write(request, "latin1");
  }

  #take(bytes: Buffer): void {
    this.#head += bytes.toString("latin1");
    const end = this.#head.indexOf("\r\n\r\n");
    if (end < 0) {
      if (this.#head.length > maxHeadBytes) this.#end("the proxy sent headers larger than 16 KiB");
      return;
    }
    const status = Number(/^HTTP\/1\.[01] ([1-5]\d\d)[ \r]/.exec(this.#head)?.[1] ?? 0);
    if (status >= 200 && status < 300)
      // Neither TLS nor HTTP/1.1 lets the destination begin.
      return this.#end(this.#head.length > end + 4 ? "the proxy sent more than a response" : null);
    this.#end(describeRefusal(status));
  }

  #end(problem: string | null): void {
    this.#stopReading();
    this.#onResult(problem === null ? null : new ProxyFailure(problem));
  }
}

function describeRefusal(status: number): string {
  if (status === 0) return "the proxy does not speak HTTP/1.1";
  if (status === 407) return "the proxy does not accept the credentials of this server (status 407)";
  if (status >= 500) return `the proxy cannot connect to the destination (status ${status})`;
  return `the proxy refused to connect to the destination (status ${status})`;
}
