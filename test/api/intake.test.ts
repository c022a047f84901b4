import { once } from "node:events";
import { connect } from "node:net";
import type { Socket } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { house, token } from "./house.ts";

/** A publish whose body is announced, and begun, but never ends. */
async function unfinished(port: number, length: number): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  await once(socket, "connect");
  socket.write(
    `POST /v2/publish/https://example.com HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\nContent-Length: ${length}\r\n\r\nbegun`,
  );
  return socket;
}

/** Lets the sockets have their say; what is injected never passes through the event loop. */
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

const refused = { status: 503, body: { error: expect.stringContaining("ask again") } };

test("bodies that find no room are refused with 503 and Retry-After, and there is room again when others end or break off", async () => {
  const { api, ask } = await house({ intakeBytes: 1000 });
  await api.listen({ port: 0, host: "127.0.0.1" });
  onTestFinished(() => api.close());
  const address = api.server.address();
  const port = address && typeof address === "object" ? address.port : 0;
  const publish = (bytes: number) => ask("POST", "/v2/publish/https://example.com", { body: Buffer.alloc(bytes) });

  expect((await publish(900)).status).toBe(200);
  const slow = await unfinished(port, 900);
  while ((await publish(200)).status === 200) await turn();
  expect(await publish(200)).toMatchObject({ ...refused, headers: { "retry-after": "1" } });
  // Whoever sends nothing, or little, still gets in.
  expect((await ask("GET", "/v2/dlq")).status).toBe(200);
  expect((await publish(90)).status).toBe(200);

  slow.destroy();
  while ((await publish(900)).status !== 200) await turn();
});

test("a body of unknown length counts as the largest it may be", async () => {
  const { ask } = await house({ intakeBytes: 1000 });
  const headers = { "transfer-encoding": "chunked" };
  expect(await ask("POST", "/v2/publish/https://example.com", { headers, body: "x" })).toMatchObject(refused);
});
