import { createTestServer, token } from "../testServer.ts";
import { listen, parseReply, request, send } from "../wire.ts";

/** The Authorization header line with the token of the first account. */
export const authorization = `Authorization: Bearer ${token}`;

/** Publishes over a socket. Sends `target` and the header lines byte for byte. */
export async function publish(target: string, headers: readonly string[] = [authorization], body = "") {
  const server = await createTestServer();
  const reply = parseReply(
    await send(await listen(server), request(`POST /v2/publish/${target} HTTP/1.1`, headers, body)),
  );
  return { reply, json: JSON.parse(reply.body), message: server.deliveries[0]?.message, server };
}
