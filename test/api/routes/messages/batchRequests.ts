import { createTestServer } from "../../testServer.ts";

/** The destination of a message whose destination does not matter. */
export const url = "https://e.example";

/** Posts a body to a new server as a batch. Returns the response and the messages of all deliveries. */
export const ask = async (body: string | Buffer, headers: Record<string, string> = {}) => {
  const server = await createTestServer();
  const reply = await server.ask("POST", "/v2/batch", { body, headers });
  return { reply, messages: server.deliveries.map(({ message }) => message) };
};

/** Posts a list as a batch. */
export const post = (items: unknown, headers?: Record<string, string>) => ask(JSON.stringify(items), headers);
