import { once } from "node:events";
import type { Socket } from "node:net";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { developmentToken, runWaypost, startWaypost, temporaryFolder } from "./waypost.ts";

// Real servers, and destinations that answer nothing.

type Connection = { openedAt: number; closedAt: number | null };

/** Starts a destination that answers the first requests with nothing. `ignoresClose`: it never closes. */
async function startHanging({ hangs, ignoresClose = false }: { hangs: number; ignoresClose?: boolean }) {
  const connections: Connection[] = [];
  const sockets = new Set<Socket>();
  let requests = 0;
  const server = createServer({ allowHalfOpen: ignoresClose }, (socket) => {
    sockets.add(socket);
    const connection: Connection = { openedAt: Date.now(), closedAt: null };
    connections.push(connection);
    const note = (): void => void (connection.closedAt ??= Date.now());
    socket.on("error", note).on("end", note).on("close", note);
    socket.on("data", () => {
      if (requests++ >= hangs) socket.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return { connections, host: `127.0.0.1:${(server.address() as AddressInfo).port}` };
}

test.each([[false], [true]])(
  "ended attempts close their connections and are sent again, also if the destination ignores the close (%s)",
  async (ignoresClose) => {
    const { connections, host } = await startHanging({ hangs: 2, ignoresClose });
    const server = await startWaypost(["dev", "--port", "0", "--data", temporaryFolder()]);
    const ask = async (method: string, path: string, headers: Record<string, string> = {}) => {
      const response = await fetch(`${server.url}${path}`, {
        method,
        headers: { authorization: `Bearer ${developmentToken}`, ...headers },
      });
      return (await response.json()) as Record<string, unknown>;
    };
    const sent = { "svc-retries": "0", "svc-retry-delay": "1000" };
    const first = String((await ask("POST", `/v2/publish/http://${host}/a`, sent))["messageId"]);
    const second = String((await ask("POST", `/v2/enqueue/q/http://${host}/b`, sent))["messageId"]);
    await expect.poll(() => connections.length).toBe(2);
    const cli = (...words: string[]) =>
      runWaypost(words, { WAYPOST_URL: server.url, WAYPOST_TOKEN: developmentToken }).ended;
    const pressedAt = Date.now();
    expect(await ask("POST", `/v2/messages/${first}/end-attempt?attempt=0`)).toMatchObject({ ended: true });
    expect(await ask("POST", `/v2/messages/${first}/end-attempt?attempt=0`)).toMatchObject({ ended: false });
    expect((await cli("hosts", "end-attempts", host)).out).toMatch(
      /^1 attempt ended; its message is sent again/,
    );
    await expect.poll(() => connections.slice(0, 2).every(({ closedAt }) => closedAt !== null)).toBe(true);
    expect((await ask("GET", `/v2/messages/${second}`))["outcomes"]).toMatchObject([
      { error: "ended by operator" },
    ]);
    const end = async (id: string) => (await ask("GET", `/v2/messages/${id}`))["state"];
    await expect.poll(() => end(first)).toBe("delivered");
    await expect.poll(() => end(second)).toBe("delivered");
    for (const again of connections.slice(2))
      expect(again.openedAt).toBeGreaterThanOrEqual(pressedAt + 1_000);
    expect((await cli("messages", "end-attempt", first)).out).toBe(`${first} is not being sent\n`);
  },
);
