import type { Server } from "node:http";
import { createServer } from "node:http";
import { connect, type AddressInfo, type Socket } from "node:net";
import { onTestFinished } from "vitest";

/** How a test proxy responds to a request for a tunnel. Without `answer`, it connects to `to`. */
export type ProxyBehaviour = {
  /** The port of this machine that all tunnels lead to. */
  to?: number;
  /** The credentials that are accepted, as `user:password`. */
  credentials?: string;
  answer?(socket: Socket, authority: string): void;
};

/** Starts a proxy that understands CONNECT alone. `tunnels` lists the destinations that were asked for. */
export async function startForwardProxy({ to, credentials, answer }: ProxyBehaviour) {
  const tunnels: string[] = [];
  const sockets = new Set<Socket>();
  const server: Server = createServer((_incoming, response) => void response.writeHead(405).end());
  server.on("connection", (socket: Socket) => {
    sockets.add(socket.on("error", () => undefined));
    socket.on("close", () => sockets.delete(socket));
  });
  server.on("connect", ({ url = "", headers }, socket: Socket, head: Buffer) => {
    tunnels.push(url);
    const expected = credentials && `Basic ${Buffer.from(credentials).toString("base64")}`;
    if (expected !== undefined && headers["proxy-authorization"] !== expected)
      return void socket.end(
        "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n",
      );
    // A server for HTTP keeps half a connection open.
    socket.on("end", () => void socket.destroy());
    if (answer) return answer(socket.resume(), url);
    const target = connect(to ?? 0, "127.0.0.1", () => {
      socket.write("HTTP/1.1 200 Connection established\r\nX-Proxy: test\r\n\r\n");
      target.write(head);
      socket.pipe(target).pipe(socket);
    });
    target.on("error", () => void socket.destroy());
    socket.on("close", () => void target.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return { port: (server.address() as AddressInfo).port, tunnels, open: sockets };
}
