import { createServer } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import { Pool } from "pg";
import { createTables, markMailed, placeOrder } from "./shop.ts";

// npm run example:outbox: a shop that stores an order and publishes its mail in one transaction. The database
// in DATABASE_URL has the outbox, and the server takes its rows: see docs/guides/outbox.md.
const pool = new Pool({ connectionString: process.env.DATABASE_URL });
const port = Number(process.env.PORT ?? 3000);
await createTables(pool);

const server = createServer((request, response) => void serve(request, response));

async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const answer = (status: number, body: object): void => {
    response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(body));
  };
  try {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const body = JSON.parse(Buffer.concat(chunks).toString()) as Record<string, unknown>;
    if (request.url === "/orders") {
      const order = await placeOrder(pool, { item: String(body["item"]), mailUrl: `${address()}/mail` });
      answer(order === null ? 409 : 201, { order });
    } else if (request.url === "/mail") {
      // A message may be delivered again, so the second call does nothing. Check its signature in production.
      const isNew = await markMailed(pool, Number(body["order"]));
      if (isNew) console.log(`mailed order ${String(body["order"])}`);
      answer(200, { mailed: isNew });
    } else answer(404, {});
  } catch (error) {
    console.error(error);
    // Waypost tries again after an error.
    answer(500, {});
  }
}

const address = (): string => {
  const open = server.address();
  return `http://127.0.0.1:${typeof open === "object" ? open?.port : port}`;
};
server.listen(port, "127.0.0.1", () => console.log(`the shop is open at ${address()}`));
