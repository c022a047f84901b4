import { bulkActionNames } from "../../../src/engine/core/bulk/entries.ts";
import type { Overrides } from "../../../src/engine/core/deadLetters/overrides.ts";
import type { DueRow } from "../../../src/engine/core/model/dueRow.ts";
import type { CommandName, CommandInput } from "../../../src/engine/store/catalog/commands.ts";
import { spans } from "../../../src/engine/core/values/limits.ts";
import type { Delivery } from "../../../src/engine/core/model/delivery.ts";
import type { Endpoint } from "../../../src/engine/core/model/urlGroup.ts";
import type { FlowControl } from "../../../src/engine/core/model/sendSettings.ts";
import type { MessageInput } from "../../../src/engine/core/model/message.ts";
import type { Millis } from "../../../src/engine/core/values/basics.ts";
import {
  makeAlertCommands,
  makeJobCommand,
  makeOutboxCommands,
  makeSeriesCommand,
  makeSourceCommands,
} from "../../operations/simulated.ts";
import { hasToken, makeBulkEntries, makeCredentialCommands, makeDueRows, makeTurns } from "./randomParts.ts";
import type { Alert } from "../../../src/operations/alerts/alert.ts";
import type { Job } from "../../../src/operations/jobs/job.ts";
import { RandomRuns, sdkVersion } from "./randomRuns.ts";
import { makeAccount, bytes, makeCallback, makeInput, makeOutcome } from "./storeFixture.ts";

/** A command and its input: plain data, equal for every store. */
export type RandomCommand = { [N in CommandName]: { name: N; input: CommandInput<N> } }[CommandName];

const accounts = ["a", "b"];
const hosts = ["https://one.example/x", "https://two.example:8443/y?z=1", "https://three.example/"];
const queues = ["q1", "q2"];
/** The last queue is never used, so that it can be deleted. */
const namedQueues = [...queues, "q3"];
const keys = ["k1", "k2"];
const groups = ["g1", "g2"];
const scheduleChanges = [
  { change: { cron: "*/2 * * * *", cleared: ["labels", "flowControl"] }, overrides: {} },
  { change: { queue: "q1", body: bytes("changed\0") }, overrides: { retries: 2, headers: [["X", "y"]] } },
  { change: { target: { url: "", group: "g1" }, withoutHeaders: ["X"] }, overrides: { labels: ["a"] } },
] as const;
const retention = { log: 400_000, deadLetters: 300_000, audit: 350_000 };
const by = { kind: "token", token: "main", address: null } as const;

/** The results of a batch that later commands can refer to. */
type Observed = {
  messageIds: readonly string[];
  dlqIds: readonly string[];
  runDlqIds: readonly string[];
  activeRuns: readonly { id: string; runId: string }[];
  toRepeat: readonly string[];
  sourceIds: readonly string[];
  waiterIds: readonly string[];
  deliveries: readonly Delivery[];
  jobs: readonly Job[];
  alerts: readonly Alert[];
};

/**
 * Makes random commands from what is known of earlier answers. They often have an effect; some are stale,
 * repeated, or refer to another account or to nothing.
 */
export class RandomCommands {
  readonly #random: () => number;
  readonly #messageIds: string[] = [];
  readonly #dlqIds: string[] = [];
  readonly #sourceIds: string[] = ["src_none"];
  #turn = 0;
  #setUpNames = { account: "b", group: "g1", schedule: "s1" };
  #running: Delivery[] = [];
  readonly #settled: Delivery[] = [];
  readonly #waiterIds: string[] = [];
  readonly #runDlqIds: string[] = [];
  readonly #activeRuns: { id: string; runId: string }[] = [];
  #bulkTurn = 0;
  #toRepeat: readonly string[] = [];
  #jobs: readonly Job[] = [];
  #alerts: readonly Alert[] = [];
  readonly #runs: RandomRuns;

  constructor(random: () => number) {
    this.#random = random;
    this.#runs = new RandomRuns({
      random,
      dlqIds: () => this.#runDlqIds,
      toRepeat: () => this.#toRepeat,
      waiterIds: () => this.#pickSome(this.#waiterIds),
      account: () => (this.#isRare() ? this.#pickOne(["b", "none"]) : "a"),
    });
  }

  /** Returns commands that run together, at the same time. */
  batch(now: Millis): RandomCommand[] {
    return Array.from({ length: 1 + this.#integerBelow(5) }, () => this.#makeCommand(now));
  }

  /** Returns how far the clock moves before the next batch. */
  pause(): Millis {
    return this.#pickOne([0, 1, 20, 900, spans.waitlistCheck, 12_500, spans.lease, 160_000]);
  }

  /** Records what later commands can refer to. */
  learn(seen: Observed): void {
    this.#messageIds.push(...seen.messageIds);
    this.#dlqIds.push(...seen.dlqIds);
    this.#runDlqIds.push(...seen.runDlqIds);
    this.#activeRuns.push(...seen.activeRuns);
    this.#toRepeat = seen.toRepeat;
    this.#jobs = seen.jobs;
    this.#alerts = seen.alerts;
    this.#sourceIds.push(...seen.sourceIds);
    this.#waiterIds.push(...seen.waiterIds);
    this.#running.push(...seen.deliveries);
    this.#settled.push(...seen.deliveries);
  }

  #makeCommand(now: Millis): RandomCommand {
    if (this.#random() < 0.4) return this.#runs.makeCommand(now);
    const account = this.#pickOne(accounts);
    const kind = this.#integerBelow(100);
    if (kind < 22) {
      const publisher = this.#isRare() ? "none" : account;
      const source = this.#isRare() ? { source: this.#sourceIds.at(-1) ?? "src_none" } : {};
      return { name: "publish", input: { account: publisher, inputs: this.#makeInputs(now), ...source } };
    }
    if (kind < 35)
      return {
        name: "claim",
        input: { limit: 1 + this.#integerBelow(8), ...(kind < 34 ? {} : { turns: makeTurns(account) }) },
      };
    if (kind < 64) return this.#settle();
    if (kind < 68) return { name: "bulk", input: this.#bulk() };
    if (kind < 71) return { name: "renew", input: { leases: this.#makeLeaseRef() } };
    if (kind < 74) return { name: "returnLeases", input: { leases: this.#makeLeaseRef() } };
    if (kind < 76)
      return {
        name: "reclaim",
        input: { node: this.#pickOne(["nod_a", "nod_b"]), limit: 1 + this.#integerBelow(4) },
      };
    if (kind < 79) return { name: "cancel", input: this.#makeCancel(account) };
    if (kind < 80)
      return {
        name: "sendNow",
        input: { account, messageId: this.#pickSome(this.#messageIds)[0] ?? "none" },
      };
    if (kind < 83) return this.#report();
    if (kind < 84) return { name: "endAttempts", input: this.#makeEnding(account) };
    return kind < 88 ? this.#makeRareCommand(account, now) : this.#setUp(now);
  }

  /** Returns what a receiver reports of an attempt that it may hold, at times for the second time. */
  #report(): RandomCommand {
    const later = this.#settled.filter(hasToken);
    const [sent] = this.#pickSome(later.slice(-4));
    if (!sent) return { name: "claim", input: { limit: 5 } };
    const held = { account: sent.message.account, messageId: sent.message.id, attempt: sent.attempt };
    if (this.#random() < 0.3) return { name: "extendAttempt", input: { ...held, extension: 20_000 } };
    const status = this.#pickOne([200, 200, 500]);
    const outcome = { status, headers: [], body: bytes(`r${status}\0`) };
    return { name: "reportAttempt", input: { ...held, digest: String(status), outcome } };
  }

  /** Returns attempts to end. In most calls, one that is running is among them. */
  #makeEnding(account: string): CommandInput<"endAttempts"> {
    const [sent] = this.#random() < 0.8 ? this.#pickSome(this.#running) : [];
    return sent
      ? {
          account: sent.message.account,
          attempts: [{ messageId: sent.message.id, attempt: sent.attempt }],
        }
      : {
          account,
          attempts: this.#pickSome(this.#messageIds).map((messageId) => ({ messageId, attempt: 0 })),
        };
  }

  /** Returns messages to cancel. In about half of the calls, one that is being sent is among them. */
  #makeCancel(account: string): CommandInput<"cancel"> {
    const [sent] = this.#random() < 0.5 ? this.#pickSome(this.#running) : [];
    return sent
      ? { account: sent.message.account, messageIds: [sent.message.id] }
      : { account, messageIds: this.#pickSome(this.#messageIds) };
  }

  /** Returns a bulk action. The actions take turns. */
  #bulk(): CommandInput<"bulk"> {
    const action = bulkActionNames[this.#bulkTurn++ % bulkActionNames.length] ?? "dlq.delete";
    const entries = makeBulkEntries(action, {
      messageIds: this.#pickSome(this.#messageIds),
      dlqIds: this.#pickSome(this.#dlqIds),
      runDlqId: this.#pickSome(this.#runDlqIds.slice(-3))[0] ?? "none",
      runs: this.#pickSome(this.#activeRuns),
      areRunsByKey: this.#random() < 0.5,
    });
    return {
      account: this.#isRare() ? "b" : "a",
      action,
      // Some are named twice.
      entries: this.#isRare() ? [...entries, ...entries] : entries,
      logRetention: retention.log,
      overrides: this.#overrides(),
      runOverrides: this.#pickOne([{}, {}, { retries: 1 }, { runId: "w-3" }]),
    };
  }

  #overrides(): Overrides {
    if (this.#isRare()) return { retries: 1e9 };
    const flowControl = this.#flowControl();
    const basic: Overrides = flowControl === null ? { retries: 1 } : { retries: 1, flowControl };
    if (this.#isRare()) return { ...basic, flowControl: { parallelism: 2, rate: null, period: null } };
    return this.#isRare() ? { ...basic, callback: { retries: 1 }, labels: ["again"] } : basic;
  }

  #replay = (): Pick<CommandInput<"replayDeadLetter">, "change" | "overrides"> => ({
    change: this.#isRare() ? {} : { url: this.#pickOne(hosts), headers: [], body: bytes("changed") },
    overrides: this.#overrides(),
  });

  #dueRows = (account: string): DueRow[] =>
    makeDueRows(account, this.#messageIds.slice(-3), (list) => this.#pickOne(list));

  #makeRareCommand(account: string, now: Millis): RandomCommand {
    const dlqIds = this.#pickSome(this.#dlqIds);
    const given: RandomCommand[] = [
      {
        name: "retryDeadLetters",
        input: { account, dlqIds, logRetention: retention.log, overrides: this.#overrides() },
      },
      { name: "replayDeadLetter", input: { account, dlqId: dlqIds[0] ?? "none", ...this.#replay() } },
      makeJobCommand(account, { jobs: this.#jobs, ids: [...dlqIds, ...this.#messageIds.slice(-2)] }, (list) =>
        this.#pickOne(list),
      ),
      { name: "createAccount", input: makeAccount(account) },
      { name: "rotateKeys", input: { account: this.#isRare() ? "none" : account, force: true, by } },
      { name: "expire", input: { account, retention, now, limit: this.#pickOne([1, 3, 100]) } },
      { name: "listDue", input: { limit: 1 + this.#integerBelow(3), except: this.#dueRows(account) } },
      { name: "claim", input: { limit: 8, heads: 1 + this.#integerBelow(3), only: this.#dueRows(account) } },
      { name: "quarantine", input: { row: this.#pickOne(this.#dueRows(account)), reason: "refused\0" } },
    ];
    return this.#pickOne(given);
  }

  /**
   * Sets up queues, keys, groups, schedules and sources. Commands take turns, so that each runs before long.
   * In each round, they name the same account and objects, so that what was created is changed and then
   * removed.
   */
  #setUp(now: Millis): RandomCommand {
    const { account, group, schedule: id } = this.#setUpNames;
    const name = this.#pickOne(namedQueues);
    const key = this.#pickOne(keys);
    const limiter = { account, id: this.#pickOne([`queue:${name}`, `key:${key}`]) };
    const source = { account, id: this.#sourceIds.at(-1) ?? "src_none" };
    const pulled = { account, name: "https://one.example" };
    const given: RandomCommand[] = [
      { name: "addPulledOrigin", input: pulled },
      { name: "pauseLimiter", input: limiter },
      ...this.#maybeTwice({ name: "resumeLimiter" as const, input: limiter }),
      {
        name: "upsertQueue",
        input: { account, name, parallelism: 1 + this.#integerBelow(3), paused: this.#isRare() },
      },
      { name: "deleteQueue", input: { account, name, slots: this.#pickSome(this.#messageIds) } },
      {
        name: "pinFlowControl",
        input: {
          account,
          key,
          ...this.#pickOne([{ parallelism: 2 }, { rate: 3, period: 20 }, { rate: this.#isRare() ? 1e9 : 2 }]),
        },
      },
      { name: "unpinFlowControl", input: { account, key, parallelism: this.#isRare(), rate: true } },
      { name: "resetRate", input: { account, key } },
      { name: "changeAccount", input: { account, change: { limits: this.#limits() } } },
      ...this.#maybeTwice({
        name: "addEndpoints" as const,
        input: { account, name: group, endpoints: this.#endpoints() },
      }),
      {
        name: "removeEndpoints",
        input: { account, name: group, endpoints: this.#endpoints() },
      },
      {
        name: "setGroupHeaders",
        input: { account, name: group, headers: [["Svc-Retries", "1"]] },
      },
      { name: "deleteGroup", input: { account, name: group } },
      ...this.#maybeTwice({
        name: "createSchedule" as const,
        input: { account, id: this.#isRare() ? null : id, ...this.#makeSchedule(now) },
      }),
      ...this.#maybeTwice({
        name: "changeSchedule" as const,
        input: { account, id, ...this.#pickOne(scheduleChanges) },
      }),
      { name: "pauseSchedule", input: { account, id } },
      { name: "resumeSchedule", input: { account, id } },
      ...this.#maybeTwice({ name: "runSchedule" as const, input: { account, id } }),
      { name: "deleteSchedule", input: { account, id } },
      ...makeSourceCommands(source, { random: this.#random, isRare: () => this.#isRare() }),
      ...makeOutboxCommands({ account, now }),
      makeSeriesCommand(account, { now, part: this.#turn % 3 }),
      ...makeCredentialCommands(source, this.#random),
      { name: "servePullers", input: { account, host: "one.example", limit: 2 } },
      { name: "removePulledOrigin", input: pulled },
      ...makeAlertCommands({ account, now, alerts: this.#alerts }, (list) => this.#pickOne(list)),
    ];
    const next = given[this.#turn++ % given.length];
    if (this.#turn % given.length === 0)
      this.#setUpNames = {
        account: this.#pickOne(accounts),
        group: this.#pickOne(groups),
        schedule: this.#pickOne(["s1", "s2"]),
      };
    return next ?? this.#settle();
  }

  #limits(): { globalParallelism: number | null; parallelism: number | null } {
    const none = { globalParallelism: null, parallelism: null };
    const max = 1 + this.#integerBelow(3);
    const bounds = [
      {},
      { globalParallelism: max },
      { parallelism: max },
      { globalParallelism: max + 1, parallelism: max },
    ];
    return { ...none, ...this.#pickOne(bounds) };
  }

  #makeSchedule(now: Millis): { cron: string; messageInput: Omit<MessageInput, "body">; body: Uint8Array } {
    const [{ body, ...messageInput } = makeInput()] = this.#makeInputs(now);
    return {
      cron: this.#pickOne(["* * * * *", "*/5 * * * *", "0 0 * * 7x"]),
      messageInput: { ...messageInput, notBefore: null },
      body,
    };
  }

  #endpoints(): Endpoint[] {
    return Array.from({ length: 1 + this.#integerBelow(2) }, () => ({
      name: this.#pickOne([null, "e1", "e2"]),
      url: this.#pickOne(hosts),
    }));
  }

  #maybeTwice<T>(one: T): T[] {
    return [one, one];
  }

  #settle(): RandomCommand {
    const delivery = this.#isRare() ? this.#settled.at(-1 - this.#integerBelow(10)) : this.#takeDelivery();
    if (!delivery) return { name: "claim", input: { limit: 5 } };
    const isHeld = hasToken(delivery) && this.#random() < 0.7;
    if (isHeld && delivery.pullKey !== undefined)
      return { name: "settle", input: makeOutcome(delivery, { status: null, heldFor: 20_000 }) };
    const isLater = isHeld && delivery.message.ackKey !== undefined;
    const status = isLater ? 202 : this.#pickOne([200, 200, 204, 404, 489, 500, 503, null]);
    const headers = isLater
      ? ([["Svc-Ack", "later"]] as const)
      : this.#pickOne([
          [],
          [sdkVersion],
          [sdkVersion],
          [["Retry-After", "3"]],
          [["Svc-Nonretryable-Error", "true"]],
        ] as const);
    return {
      name: "settle",
      input: makeOutcome(delivery, {
        status,
        headers,
        error: status === null ? "no answer" : null,
        body: bytes(`s${status}\0`),
      }),
    };
  }

  /**
   * Takes a running delivery. Failure callbacks are few and come first, so that they end before their runs.
   */
  #takeDelivery(): Delivery | undefined {
    const callback = this.#running.find(({ message }) => message.run?.kind === "failure");
    const delivery =
      callback && this.#random() < 0.5 ? callback : this.#running[this.#integerBelow(this.#running.length)];
    this.#running = this.#running.filter((one) => one !== delivery);
    return delivery;
  }

  #makeLeaseRef() {
    const deliveries = [...this.#pickSome(this.#running), ...(this.#isRare() ? this.#settled.slice(-2) : [])];
    return deliveries.map((delivery) => {
      const { account, id: messageId } = delivery.message;
      return { account, messageId, attempt: delivery.attempt, hasToken: hasToken(delivery) };
    });
  }

  #makeInputs(now: Millis): MessageInput[] {
    return Array.from({ length: 1 + this.#integerBelow(4) }, () => {
      const at = this.#pickOne([
        { delay: null },
        { delay: null },
        { delay: 1 + this.#integerBelow(20_000) },
        { notBefore: now - 5 + this.#integerBelow(3_000) },
      ]);
      const group = this.#isRare() ? this.#pickOne(groups) : null;
      return makeInput({
        group,
        queue: this.#random() < 0.25 ? this.#pickOne(queues) : null,
        flowControl: this.#flowControl(),
        url: group === null ? this.#pickOne(hosts) : "",
        brand: this.#pickOne(["svc", "upstash"] as const),
        body: bytes("b".repeat(this.#integerBelow(40))),
        ...at,
        deduplication: this.#isRare() ? `d${this.#integerBelow(4)}` : null,
        deduplicationWindow: this.#isRare() ? 1_000 : null,
        retries: this.#pickOne([null, 0, 0, 1, 2_000]),
        labels: this.#pickSome(["l", "m\ud800"]),
        callback: this.#isRare()
          ? { ...makeCallback(this.#pickOne(hosts)), flowControl: this.#flowControl() }
          : null,
        failureCallback: this.#isRare() ? makeCallback(this.#pickOne(hosts)) : null,
        ...(this.#isRare() && { ackTimeout: 3_600_000 }),
      });
    });
  }

  #flowControl(): FlowControl | null {
    const limits = {
      parallelism: this.#pickOne([null, 1, 2]),
      rate: this.#pickOne([null, null, 1, 3]),
      period: this.#pickOne([null, 50, 5_000]),
    };
    return this.#random() < 0.25 ? { key: this.#pickOne(keys), ...limits } : null;
  }

  #pickSome<T>(list: readonly T[]): T[] {
    return list.length === 0
      ? []
      : Array.from({ length: this.#integerBelow(4) }, () => this.#pickOne(list.slice(-12)));
  }

  #isRare(): boolean {
    return this.#random() < 0.12;
  }

  #integerBelow(count: number): number {
    return Math.floor(this.#random() * count);
  }

  #pickOne<T>(list: readonly T[]): T {
    const one = list[this.#integerBelow(list.length)];
    if (one === undefined) throw new Error("nothing to choose from");
    return one;
  }
}
