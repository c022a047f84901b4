import { Client } from "pg";
import { formatSchemaSql } from "../../../src/operations/outbox/schemaSql.ts";
import { startPostgres } from "../../postgres.ts";
import { startArea } from "../../recording/area.ts";
import type { Recorder } from "../recorder.ts";

/** Outboxes, with their own database. */
export async function showOutboxes(recorder: Recorder): Promise<void> {
  const database = await startPostgres();
  const sql = new Client({ connectionString: database.url });
  try {
    await sql.connect();
    await sql.query(formatSchemaSql({ schema: "waypost" }));
    const area = await startArea(recorder.session, "outboxes", { plan: "paid" });
    const url = new URL(database.url);
    // The server of the examples asks for no password.
    Object.assign(url, { password: "any", search: "sslmode=disable" });
    const databaseUrl = url.href;
    recorder.hide(databaseUrl, "postgres://waypost:…@db.example.com:5432/shop?sslmode=verify-full");
    const path = { name: "shop" };
    const tidy = (body: object) => ({ ...body, state: "running", node: undefined });
    await recorder.show(area, "PUT /v2/outboxes/{name}", {
      ...{ path, tidy },
      body: { databaseUrl, token: area.account.token },
    });
    await recorder.show(area, "GET /v2/outboxes/{name}", { path, tidy });
    await recorder.show(area, "GET /v2/outboxes", {
      tidy: ({ outboxes }: { outboxes: object[] }) => ({ outboxes: outboxes.map(tidy) }),
    });
    await recorder.show(area, "POST /v2/outboxes/{name}/take-over", { path, tidy });
    await recorder.show(area, "DELETE /v2/outboxes/{name}", { path });
  } finally {
    await sql.end();
    await database.stop();
  }
}
