import type { Client } from "pg";
import { birthOf, firstIdAt } from "../../core/values/ids.ts";
import type { Millis } from "../../core/model/message.ts";
import type { Part } from "./logParts.ts";
import { endOf, isLocked, makeParts, partsOf, patience } from "./logParts.ts";
import { alone } from "./migration.ts";
import type { PostgresOptions } from "./session.ts";
import { connect, plainly } from "./session.ts";
import { Unavailable } from "../store.ts";
import { day } from "../../core/values/time.ts";

/** From today's midnight on: so there is a day at least for what is to be done before it, and rows need another part from then on. */
const untilEnd: Millis = 3 * day;
/** So long it may take to look through a log. What takes longer is ended, and begun again. */
const longestLook: Millis = day / 2;
const lookPatience: Millis = 2_000;

/**
 * A log that was large when it was made the first part of many (migration 0008) is a part without an end. With an end it would have been
 * looked through, to see whether all its rows are before that, and everybody would have waited. It gets its end while nodes serve, in three steps that
 * each node can go on with:
 *
 * 1. A constraint: no row from the end on. It holds for what comes in; what is there is not looked at. The end is days ahead.
 * 2. The constraint is validated. That takes long, and stops nobody.
 * 3. The part is attached again, with its end, which the constraint proves. That takes a moment.
 *
 * Where that is not done a day before the end, whoever makes room for new rows takes the constraint away (`makeParts`), and all begins again.
 */
export class OpenLog {
  readonly #options: PostgresOptions;
  #ending: Promise<void> | null = null;
  #looking: Client | null = null;
  #isClosed = false;
  #fault: Error | null = null;

  constructor(options: PostgresOptions) {
    this.#options = options;
  }

  /** Sees to it that there is no part without an end, and does not wait for that. Or throws what the last time came to grief with. */
  end(): void {
    const fault = this.#fault;
    this.#fault = null;
    if (fault !== null) throw fault;
    this.#ending ??= this.#end()
      .catch((error: unknown) => {
        // Somebody reads it, another node is at it, or the database is away: it is for another time.
        if (isLocked(error) || error instanceof Unavailable || this.#isClosed) return;
        this.#fault = error instanceof Error ? error : new Error(String(error));
      })
      .finally(() => (this.#ending = null));
  }

  /** What is under way is for another node. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#looking?.end().catch(() => undefined);
    await this.#ending;
  }

  async #end(): Promise<void> {
    const name = await this.#alone((client) => this.#limit(client));
    if (name === null || this.#isClosed) return;
    await this.#look(name);
    if (!this.#isClosed) await this.#alone((client) => this.#attach(client));
  }

  /** Answers the name of the part that gets an end. */
  async #limit(client: Client): Promise<string | null> {
    const open = openOf(await partsOf(client));
    if (!open) return null;
    const [name, now] = [open.name, await this.#now(client)];
    if (open.endsAt !== null && open.endsAt > now + day + longestLook) return name;
    const newest = Math.max(now, birthOf(await newestOf(client)));
    const end = firstIdAt("log", Math.floor(newest / day) * day + untilEnd);
    const again = open.endsAt === null ? "" : `alter table ${name} drop constraint ${endOf}; `;
    await plainly(
      client,
      `set local lock_timeout = ${patience}; ${again}alter table ${name} add constraint ${endOf} check (id < '${end}') not valid`,
    );
    return name;
  }

  async #look(name: string): Promise<void> {
    const client = await connect(this.#options, { kind: "migration" });
    this.#looking = client;
    try {
      if (this.#isClosed) return;
      // In one go: the database comes to an end with it, also where the node has ended meanwhile.
      const limits = `set local lock_timeout = ${lookPatience}; set local statement_timeout = ${longestLook}`;
      await plainly(client, `begin; ${limits}; alter table ${name} validate constraint ${endOf}; commit`);
    } finally {
      this.#looking = null;
      await client.end();
    }
  }

  async #attach(client: Client): Promise<void> {
    const open = openOf(await partsOf(client));
    if (!open || open.endsAt === null || !(await isProved(client, open))) return;
    const { name, endsAt } = open;
    await plainly(
      client,
      `set local lock_timeout = ${patience}; alter table log detach partition ${name};
        alter table log attach partition ${name} for values from (minvalue) to ('${firstIdAt("log", endsAt)}');
        alter table ${name} drop constraint ${endOf}`,
    );
    const now = await this.#now(client);
    await makeParts(client, [now, now + day]);
  }

  async #now(client: Client): Promise<Millis> {
    const [row] = await plainly(client, `select floor(extract(epoch from clock_timestamp()) * 1000)::bigint as now`);
    return this.#options.now?.() ?? Number(row?.now);
  }

  #alone<T>(run: (client: Client) => Promise<T>): Promise<T> {
    return alone(this.#options, "partitions", run);
  }
}

const openOf = (parts: readonly Part[]): Part | undefined => parts.find(({ to }) => to === Infinity);

/** Found by the key of each account: going through all rows is what is not to be done here. */
async function newestOf(client: Client): Promise<string> {
  const [row] = await plainly(
    client,
    `select coalesce(max(last.id), '') as id from accounts,
      lateral (select id from log where log.account = accounts.id order by id desc limit 1) as last`,
  );
  return String(row?.id);
}

async function isProved(client: Client, { name }: Part): Promise<boolean> {
  const found = await plainly(
    client,
    `select 1 from pg_constraint where conrelid = '${name}'::regclass and conname = '${endOf}' and convalidated`,
  );
  return found.length > 0;
}
