import { Claimer } from "../../../../src/engine/delivery/claimer.ts";
import type { Delivery } from "../../../../src/engine/core/model/delivery.ts";
import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import type { Store } from "../../../../src/engine/store/store.ts";
import { makeRunStart, makeRunStep } from "../contract/runs.ts";
import { bytes, makeInput, makeOldestFirstQuery } from "../storeFixture.ts";
import type { StoreFixture } from "../storeFixture.ts";

// The content of a store that a test damages: what is put into it, what can be read, and what is sent.

const minute = 60_000;

/** Returns the content of a message as it is sent. */
export const fingerprint = ({ message: { url, method, headers, body } }: Delivery): string =>
  JSON.stringify([url, method, headers, Buffer.from(body).toString("base64")]);

/** Publishes and settles messages, and creates schedules, URL groups and runs. Returns the deliveries. */
export async function fillStore(
  fixture: StoreFixture,
  random: () => number,
  phase: string,
): Promise<Delivery[]> {
  const sent: Delivery[] = [];
  const text = (max: number): Uint8Array =>
    bytes(
      Array.from({ length: 1 + Math.floor(random() * max) }, () =>
        Math.floor(random() * 36).toString(36),
      ).join(""),
    );
  for (let n = 0; n < 6; n++) {
    const inputs = Array.from({ length: 8 }, (_, at) =>
      makeInput({
        url: `https://${phase}${n}.example/m${at}`,
        body: text(at === 0 ? 30_000 : 700),
        delay: minute,
      }),
    );
    await fixture.publish(inputs);
    sent.push(
      await publishFailing(
        fixture,
        makeInput({ url: `https://dead.example/${phase}${n}`, body: text(300), retries: 0 }),
      ),
    );
    const name = `${phase}${n}`;
    await fixture.store.execute("addEndpoints", {
      account: "acc",
      name,
      endpoints: [{ name: "one", url: `https://group.example/${name}` }],
    });
    const { body, ...input } = makeInput({ url: `https://fired.example/${name}`, body: text(2_000) });
    await fixture.store.execute("createSchedule", {
      account: "acc",
      id: name,
      cron: "* * * * *",
      messageInput: input,
      body,
    });
    const run = `wfr_${name}`;
    await fixture.publish([
      makeRunStart(run, { body: text(500) }),
      makeRunStep(run, 1, { body: text(3_000) }),
      makeRunStep(run, 2, { body: text(800), delay: minute }),
    ]);
    const delivered = fixture.delivered();
    sent.push(...delivered);
    for (const delivery of delivered) await fixture.settle(delivery);
  }
  return sent;
}

/** Publishes a message that fails for good. */
async function publishFailing(fixture: StoreFixture, input: MessageInput): Promise<Delivery> {
  const delivery = await fixture.sent(input);
  await fixture.settle(delivery, { status: 500 });
  return delivery;
}

/**
 * Reads everything, one by one and in lists, and returns it by name. `onError` receives the errors of reads.
 */
export async function readContents(
  store: Store,
  onError: (error: unknown) => void = rethrow,
): Promise<Map<string, string>> {
  const things = new Map<string, string>();
  const trying = async (run: () => Promise<void>): Promise<void> => run().catch(onError);
  const keep = (name: string, row: { damaged?: true } | null): void =>
    void (row && things.set(name, row.damaged ? "damaged" : JSON.stringify(row)));
  await trying(async () => {
    for (const { deadLetter: input, message } of (await store.read.deadLetters(makeOldestFirstQuery()))
      .entries) {
      keep(`deadLetter ${input.id}`, input);
      keep(`message ${message.id}`, message);
    }
  });
  await trying(async () => {
    for (const group of await store.read.listResources("urlGroups", { account: "acc", limit: 100 }))
      keep(`group ${group.name}`, group);
  });
  await trying(async () => {
    for (const schedule of await store.read.listResources("schedules", { account: "acc", limit: 100 }))
      keep(`schedule ${schedule.id}`, schedule);
  });
  await trying(async () => {
    const { messageIds } = await store.read.unfinished({
      account: "acc",
      filter: {},
      cursor: null,
      count: 1_000,
    });
    for (const id of messageIds)
      await trying(async () => keep(`message ${id}`, (await store.read.message("acc", id))?.message ?? null));
  });
  await trying(async () => {
    const { runs } = await store.read.runs({ account: "acc", filter: {}, cursor: null, count: 100 });
    for (const run of runs)
      await trying(async () => {
        for (const step of await store.read.history("acc", run.id)) keep(`step ${step.id}`, step);
      });
  });
  return things;
}

const rethrow = (error: unknown): never => {
  throw error;
};

/** Claims everything that becomes due within some minutes. `said` contains the log lines. */
export async function sendAll(fixture: StoreFixture): Promise<{ sent: Delivery[]; said: string[] }> {
  const sent: Delivery[] = [];
  const said: string[] = [];
  const claims = new Claimer({
    store: fixture.store,
    now: () => fixture.clock.now,
    logFailure: (what, error) => said.push(`${what}: ${String(error)}`),
  });
  fixture.clock.now += 2 * minute;
  for (let n = 0; n < 12; n++) {
    try {
      const { more } = await claims.next({ limit: 100, hostWaitlists: 100, heads: 100 });
      if (!more) fixture.clock.now += 20_000;
    } catch (error) {
      said.push(String(error));
      fixture.clock.now += 20_000;
    }
    const settled = fixture.delivered().map((delivery) => {
      if (delivery.unsendable === undefined) sent.push(delivery);
      else said.push(delivery.unsendable);
      const outcome =
        delivery.unsendable === undefined
          ? {}
          : { status: null, error: delivery.unsendable, isFinal: true as const };
      return fixture.settle(delivery, outcome).catch((error: unknown) => said.push(String(error)));
    });
    await Promise.all(settled);
  }
  said.push(...fixture.faults);
  return { sent, said };
}
