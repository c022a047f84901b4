import type { Overrides } from "../../src/core/commands/overrides.ts";
import type { DueRow } from "../../src/core/commands/quarantine.ts";
import type { CommandName, InputOf } from "../../src/core/commands/index.ts";
import { spans } from "../../src/core/values/limits.ts";
import type { Turns } from "../../src/core/fairness/turns.ts";
import type { Delivery, Endpoint, FlowControl, Letter, Millis } from "../../src/core/model/message.ts";
import { RandomRuns, sdkVersion } from "./randomRuns.ts";
import { accountNamed, bytes, callbackTo, letterTo, outcomeOf } from "./world.ts";

/** A command with what it is given: plain data, the same for every store. */
export type Given = { [N in CommandName]: { name: N; input: InputOf<N> } }[CommandName];

const accounts = ["a", "b"];
const hosts = ["https://one.example/x", "https://two.example:8443/y?z=1", "https://three.example/"];
const queues = ["q1", "q2"];
/** One is never used, so that it can be deleted. */
const namedQueues = [...queues, "q3"];
const keys = ["k1", "k2"];
const groups = ["g1", "g2"];
const retention = { log: 400_000, deadLetters: 300_000, audit: 350_000 };
const by = { kind: "token", token: "main", address: null } as const;

/**
 * Commands by chance, from what is known of earlier answers: often with an effect, sometimes stale, doubled, aimed at
 * another account or at nothing.
 */
export class RandomCommands {
  readonly #random: () => number;
  readonly #messageIds: string[] = [];
  readonly #dlqIds: string[] = [];
  readonly #sourceIds: string[] = ["src_none"];
  #turn = 0;
  #running: Delivery[] = [];
  readonly #past: Delivery[] = [];
  readonly #waiterIds: string[] = [];
  readonly #runDlqIds: string[] = [];
  #toRepeat: readonly string[] = [];
  readonly #runs: RandomRuns;

  constructor(random: () => number) {
    this.#random = random;
    this.#runs = new RandomRuns({
      random,
      dlqIds: () => this.#runDlqIds,
      toRepeat: () => this.#toRepeat,
      waiterIds: () => this.#some(this.#waiterIds),
      account: () => (this.#rarely() ? this.#of(["b", "none"]) : "a"),
    });
  }

  /** What is to run together. The time is the same for all. */
  batch(now: Millis): Given[] {
    return Array.from({ length: 1 + this.#below(5) }, () => this.#one(now));
  }

  /** How far the clock goes before the next batch. */
  pause(): Millis {
    return this.#of([0, 1, 20, 900, spans.lineCheck, 12_500, spans.lease, 160_000]);
  }

  learn({
    messageIds,
    dlqIds,
    runDlqIds,
    toRepeat,
    sourceIds,
    waiterIds,
    deliveries,
  }: {
    messageIds: readonly string[];
    dlqIds: readonly string[];
    runDlqIds: readonly string[];
    toRepeat: readonly string[];
    sourceIds: readonly string[];
    waiterIds: readonly string[];
    deliveries: readonly Delivery[];
  }): void {
    this.#messageIds.push(...messageIds);
    this.#dlqIds.push(...dlqIds);
    this.#runDlqIds.push(...runDlqIds);
    this.#toRepeat = toRepeat;
    this.#sourceIds.push(...sourceIds);
    this.#waiterIds.push(...waiterIds);
    this.#running.push(...deliveries);
    this.#past.push(...deliveries);
  }

  #one(now: Millis): Given {
    if (this.#random() < 0.4) return this.#runs.one(now);
    const account = this.#of(accounts);
    const kind = this.#below(100);
    if (kind < 30) return { name: "publish", input: { account: this.#rarely() ? "none" : account, letters: this.#letters(now) } };
    if (kind < 44) return { name: "claim", input: { limit: 1 + this.#below(8), ...(kind < 43 ? {} : { turns: turnsFrom(account) }) } };
    if (kind < 73) return this.#settle();
    if (kind < 77) return { name: "renew", input: { held: this.#held() } };
    if (kind < 80) return { name: "giveBack", input: { held: this.#held() } };
    if (kind < 82) return { name: "reclaim", input: { node: this.#of(["nod_a", "nod_b"]), limit: 1 + this.#below(4) } };
    if (kind < 86) return { name: "cancel", input: this.#unwanted(account) };
    return kind < 92 ? this.#seldom(account, now) : this.#setUp(account, now);
  }

  /** Messages to be cancelled, of which a good part are being sent. */
  #unwanted(account: string): InputOf<"cancel"> {
    const [sent] = this.#random() < 0.5 ? this.#some(this.#running) : [];
    return sent ? { account: sent.message.account, messageIds: [sent.message.id] } : { account, messageIds: this.#some(this.#messageIds) };
  }

  #overrides(): Overrides {
    if (this.#rarely()) return { retries: 1e9 };
    const flowControl = this.#flowControl();
    const of: Overrides = flowControl === null ? { retries: 1 } : { retries: 1, flowControl };
    if (this.#rarely()) return { ...of, flowControl: { parallelism: 2, rate: null, period: null } };
    return this.#rarely() ? { ...of, callback: { retries: 1 }, labels: ["again"] } : of;
  }

  #seldom(account: string, now: Millis): Given {
    const dlqIds = this.#some(this.#dlqIds);
    const given: Given[] = [
      {
        name: "retryDeadLetters",
        input: {
          account,
          dlqIds,
          logRetention: retention.log,
          overrides: this.#overrides(),
        },
      },
      { name: "deleteDeadLetters", input: { account, dlqIds, logRetention: retention.log } },
      { name: "createAccount", input: accountNamed(account) },
      { name: "rotateKeys", input: { account: this.#rarely() ? "none" : account, force: true, by } },
      { name: "expire", input: { account, retention, now, limit: this.#of([1, 3, 100]) } },
      { name: "listDue", input: { limit: 1 + this.#below(3), except: this.#dueRows(account) } },
      { name: "claim", input: { limit: 8, heads: 1 + this.#below(3), only: this.#dueRows(account) } },
      { name: "putAside", input: { row: this.#of(this.#dueRows(account)), reason: "refused\0" } },
    ];
    return this.#of(given);
  }

  #dueRows(account: string): DueRow[] {
    const messages = this.#messageIds.slice(-3).map((id): DueRow => ({ table: "messages", account, id }));
    return [
      ...messages,
      { table: "lines", account, id: "one.example" },
      {
        table: "flows",
        account,
        id: this.#of(["queue:q1", "queue:q2", "key:k1", "key:k2", "account:", "endpoint:https://one.example/x"]),
      },
      { table: "schedules", account, id: this.#of(["s1", "s2"]) },
    ];
  }

  /** Queues, keys, groups, schedules, sources: few names, so that they are met again. */
  #setUp(account: string, now: Millis): Given {
    const [name, key, id] = [this.#of(namedQueues), this.#of(keys), this.#of(["s1", "s2"])];
    const flow = { account, id: this.#of([`queue:${name}`, `key:${key}`]) };
    const source = { account, id: this.#of(this.#sourceIds.slice(-3)) };
    const given: Given[] = [
      { name: "pauseFlow", input: flow },
      ...this.#twice({ name: "resumeFlow" as const, input: flow }),
      { name: "upsertQueue", input: { account, name, parallelism: 1 + this.#below(3), paused: this.#rarely() } },
      { name: "deleteQueue", input: { account, name, slots: this.#some(this.#messageIds) } },
      {
        name: "pinFlow",
        input: { account, key, ...this.#of([{ parallelism: 2 }, { rate: 3, period: 20 }, { rate: this.#rarely() ? 1e9 : 2 }]) },
      },
      { name: "unpinFlow", input: { account, key, parallelism: this.#rarely(), rate: true } },
      { name: "resetRate", input: { account, key } },
      { name: "changeAccount", input: { account, change: { limits: this.#limits() } } },
      ...this.#twice({ name: "addEndpoints" as const, input: { account, name: this.#of(groups), endpoints: this.#endpoints() } }),
      { name: "removeEndpoints", input: { account, name: this.#of(groups), endpoints: this.#endpoints() } },
      { name: "setGroupHeaders", input: { account, name: this.#of(groups), headers: [["Svc-Retries", "1"]] } },
      { name: "deleteGroup", input: { account, name: this.#of(groups) } },
      ...this.#twice({ name: "createSchedule" as const, input: { account, id: this.#rarely() ? null : id, ...this.#scheduled(now) } }),
      { name: "pauseSchedule", input: { account, id } },
      { name: "resumeSchedule", input: { account, id } },
      { name: "deleteSchedule", input: { account, id } },
      ...this.#ofSources(source),
    ];
    // In turn, so that each has had its turn before long.
    return given[this.#turn++ % given.length] ?? this.#settle();
  }

  #limits(): { globalParallelism: number | null; parallelism: number | null } {
    const [none, most] = [{ globalParallelism: null, parallelism: null }, 1 + this.#below(3)];
    const bounds = [{}, { globalParallelism: most }, { parallelism: most }, { globalParallelism: most + 1, parallelism: most }];
    return { ...none, ...this.#of(bounds) };
  }

  #ofSources(named: { account: string; id: string }): Given[] {
    const { account } = named;
    const setUp = { name: "n", destination: "https://one.example/", headers: [], verification: null, deduplicate: false, paused: false };
    const call = {
      others: 0,
      reason: "unsigned",
      method: "POST",
      size: 9,
      body: bytes("no\0"),
      headers: [["X", "y"]] as const,
      callerIp: null,
    };
    return [
      { name: "createSource", input: { account, ...setUp, secretHash: `secret ${this.#random()}` } },
      { name: "changeSource", input: { ...named, change: { paused: this.#rarely() } } },
      ...this.#twice({ name: "keepRejection" as const, input: { ...named, ...call } }),
      { name: "noteAcceptance", input: named },
      { name: "deleteSource", input: named },
      {
        name: "createToken",
        input: {
          ...{ account, hash: `token ${this.#random()}`, scope: null, name: "", verbs: ["publish"], expiresAt: null },
          destinations: this.#of([[], ["https://one.example/*"], ["nowhere"]]),
        },
      },
      { name: "rewrite", input: { accounts: [account], sources: [[account, named.id]] } },
      { name: "takeBurst", input: { account, needed: 1 + this.#below(3), wanted: this.#below(9) } },
    ];
  }

  #scheduled(now: Millis): { cron: string; letter: Omit<Letter, "body">; body: Uint8Array } {
    const [{ body, ...letter } = letterTo()] = this.#letters(now);
    return { cron: this.#of(["* * * * *", "*/5 * * * *", "0 0 * * 7x"]), letter: { ...letter, notBefore: null }, body };
  }

  #endpoints(): Endpoint[] {
    return Array.from({ length: 1 + this.#below(2) }, () => ({ name: this.#of([null, "e1", "e2"]), url: this.#of(hosts) }));
  }

  #twice<T>(one: T): T[] {
    return [one, one];
  }

  #settle(): Given {
    const delivery = this.#rarely() ? this.#past.at(-1 - this.#below(10)) : this.#taken();
    if (!delivery) return { name: "claim", input: { limit: 5 } };
    const status = this.#of([200, 200, 204, 404, 489, 500, 503, null]);
    const headers = this.#of([[], [sdkVersion], [sdkVersion], [["Retry-After", "3"]], [["Svc-Nonretryable-Error", "true"]]] as const);
    return {
      name: "settle",
      input: outcomeOf(delivery, { status, headers, error: status === null ? "no answer" : null, body: bytes(`s${status}\0`) }),
    };
  }

  #taken(): Delivery | undefined {
    const delivery = this.#running[this.#below(this.#running.length)];
    this.#running = this.#running.filter((one) => one !== delivery);
    return delivery;
  }

  #held() {
    const deliveries = [...this.#some(this.#running), ...(this.#rarely() ? this.#past.slice(-2) : [])];
    return deliveries.map(({ message: { account, id }, attempt }) => ({ account, messageId: id, attempt }));
  }

  #letters(now: Millis): Letter[] {
    return Array.from({ length: 1 + this.#below(4) }, () => {
      const at = this.#of([
        { delay: null },
        { delay: null },
        { delay: 1 + this.#below(20_000) },
        { notBefore: now - 5 + this.#below(3_000) },
      ]);
      const group = this.#rarely() ? this.#of(groups) : null;
      return letterTo({
        ...{ group, queue: this.#random() < 0.25 ? this.#of(queues) : null, flowControl: this.#flowControl() },
        ...{
          url: group === null ? this.#of(hosts) : "",
          brand: this.#of(["svc", "upstash"] as const),
          body: bytes("b".repeat(this.#below(40))),
          ...at,
        },
        ...{
          deduplication: this.#rarely() ? `d${this.#below(4)}` : null,
          deduplicationWindow: this.#rarely() ? 1_000 : null,
          retries: this.#of([null, 0, 0, 1, 2_000]),
          labels: this.#some(["l", "m\ud800"]),
        },
        callback: this.#rarely() ? { ...callbackTo(this.#of(hosts)), flowControl: this.#flowControl() } : null,
        failureCallback: this.#rarely() ? callbackTo(this.#of(hosts)) : null,
      });
    });
  }

  #flowControl(): FlowControl | null {
    const limits = { parallelism: this.#of([null, 1, 2]), rate: this.#of([null, null, 1, 3]), period: this.#of([null, 50, 5_000]) };
    return this.#random() < 0.25 ? { key: this.#of(keys), ...limits } : null;
  }

  #some<T>(list: readonly T[]): T[] {
    return list.length === 0 ? [] : Array.from({ length: this.#below(4) }, () => this.#of(list.slice(-12)));
  }

  #rarely(): boolean {
    return this.#random() < 0.12;
  }

  #below(count: number): number {
    return Math.floor(this.#random() * count);
  }

  #of<T>(list: readonly T[]): T {
    const one = list[this.#below(list.length)];
    if (one === undefined) throw new Error("nothing to choose from");
    return one;
  }
}

/** A turn through the accounts of each table, from this one on. */
const turnsFrom = (account: string): Turns => ({ messages: account, lines: "", flows: account, schedules: "", waiters: account });
