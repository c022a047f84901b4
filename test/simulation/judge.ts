import type { PublishResult } from "../../src/core/commands/publish.ts";
import { hasHand, laneOf } from "../../src/core/admission/capacity.ts";
import { maxLost } from "../../src/core/values/limits.ts";
import type { Delivery, Envelope, Letter, LogRow, MessageState } from "../../src/core/model/message.ts";
import type { Retention } from "../../src/core/commands/retention.ts";
import type { Call } from "../../src/store/store.ts";
import type { Batch, Case, Demand } from "./batch.ts";
import { isLease, isLost } from "./batch.ts";
import { Accounts } from "./accounts.ts";
import { Allowances } from "./allowances.ts";
import { Flows } from "./flows.ts";
import { Keys } from "./keys.ts";
import { Life } from "./life.ts";
import { checkRemovals } from "./removals.ts";
import { Requests } from "./requests.ts";
import type { NodeHands } from "./node.ts";
import { isRefusal, lettersOf, retriedOf } from "./origins.ts";
import { Runs } from "./runs.ts";
import { Schedules } from "./schedules.ts";
import { UsageRecount } from "./usage.ts";
import type { Change, Changes } from "./changes.ts";
import type { Storage } from "./storage.ts";
import type { World } from "./world.ts";

/**
 * Watches every batch and every call, and knows from its own records what may happen next. It is told what was asked and
 * sees the rows; it shares no rule with `core`.
 */
export class Judge {
  readonly lives = new Map<string, Life>();
  readonly #world: World;
  readonly #storage: Storage;
  readonly #keys = new Keys();
  readonly #flows = new Flows();
  readonly #allowances = new Allowances();
  readonly accounts = new Accounts();
  readonly #schedules = new Schedules();
  readonly requests = new Requests();
  readonly runs = new Runs();
  readonly #usage = new UsageRecount();
  readonly #retention: Retention;
  /** Messages that wait for a hand, by lane. */
  readonly #held = new Map<string, Set<string>>();
  /** Calls under way, by node and by lane. */
  readonly #calls = new Map<string, number>();
  /** The bytes of their bodies. */
  readonly #bytes = new Map<string, number>();
  readonly #total: NodeHands;
  /** When signing keys were replaced. */
  readonly #replaced = new Map<string, number>();
  /** Claims of a node, one after another, that met a world in which nothing had changed, and changed nothing, since it had its hold. */
  readonly idleClaims = new Map<string, number>();
  claims = 0;
  /** What a run must have seen to be worth its name, besides what its trace tells. */
  readonly happened = new Set<string>();
  /** The first broken promise. */
  broken: string | null = null;

  constructor(of: { world: World; storage: Storage; retention: Retention; hands: NodeHands }) {
    this.#world = of.world;
    this.#storage = of.storage;
    this.#retention = of.retention;
    this.#total = of.hands;
  }

  get unfinished(): number {
    return this.#storage.tables.messages.size + this.#storage.tables.activeRuns.size;
  }

  readonly demand: Demand = (holds, promise) => {
    if (holds || this.broken !== null) return;
    this.broken = promise;
    this.#world.note(`BROKEN: ${promise}`);
  };

  async committed(batch: Batch): Promise<void> {
    const changes = await this.#storage.changes();
    const { now } = this.#world;
    const of = { ...batch, changes };
    this.#countClaims(of);
    const touched = this.#noteBirths(of);
    for (const { before, after } of changes.log) {
      if (!after || before) continue;
      const life = this.#lifeOf(after.account, after.messageId);
      if (life) touched.add(life);
      life?.log(after, now);
    }
    for (const change of changes.messages) this.#checkState(change, of);
    this.#checkReports(of);
    this.#checkDeliveries(of);
    this.#checkDeadLetters(of);
    for (const life of touched) life.checkCallbacks(this.#storage.tables);
    this.#checkLines(changes);
    const { lives, demand } = this;
    const { tables } = this.#storage;
    this.#keys.judge(of, { lives, now, demand });
    const happens = (what: string): unknown => this.happened.add(what);
    this.#flows.judge(of, { lives, now, demand, tables, happens });
    this.#allowances.judge(of, { demand, tables, lives });
    this.requests.judge(of, { demand, tables, happens });
    this.accounts.judge(of, { demand, tables, now, retention: this.#retention, happens });
    const hasSpent = (account: string): boolean | null => this.accounts.mayNotPublish(account, { tables, now });
    this.#schedules.judge(of, { now, demand, tables, happens, hasSpent, retried: retriedOf(of) });
    this.runs.judge(of, { demand, tables, now, retention: this.#retention, happens });
    this.#usage.judge(of, { lives, now, demand, tables, happens });
    checkRemovals(of, { lives, demand, tables, now, retention: this.#retention, happens });
  }

  /** A client was told that its message is taken in. */
  acknowledged(results: readonly PublishResult[]): void {
    for (const result of results) {
      // A group may have no endpoints.
      const isRefused = "refused" in result && isRefusal(result);
      const all = "each" in result ? result.each : isRefused ? [] : [result];
      for (const one of all) {
        this.demand("messageId" in one && this.lives.has(one.messageId), `what was acknowledged exists: ${JSON.stringify(result)}`);
      }
    }
  }

  /** A node calls a destination. `running`: the deliveries of the node, this one included. */
  called({ node, delivery, lane, running }: { node: string; delivery: Delivery; lane: string; running: number }): void {
    const { message, attempt } = delivery;
    const life = this.#lifeOf(message.account, message.id);
    life?.call(attempt, this.#world.now);
    const { total, perHost, bytes } = this.#total;
    this.demand(running <= total, `no more deliveries than hands: ${node} has ${running} of ${total}`);
    const of = (counts: Map<string, number>, name: string): number => counts.get(name) ?? 0;
    const before = {
      ...{ all: of(this.#calls, node), lane: of(this.#calls, `${node} ${lane}`) },
      ...{ bytes: of(this.#bytes, node), laneBytes: of(this.#bytes, `${node} ${lane}`) },
      ...{ account: of(this.#calls, `${node} ${message.account}`), accountBytes: of(this.#bytes, `${node} ${message.account}`) },
    };
    const hands = {
      ...{ free: total, perHost, behind: false, busy: new Map() },
      bytes: { free: bytes.total, perBatch: bytes.perBatch, busy: {} },
      held: { hands: { total, byAccount: new Map() }, bytes: { total: bytes.total, byAccount: new Map() } },
    };
    this.demand(hasHand(hands, before, lane), `none has more than its share: ${node} calls ${lane}, and has ${JSON.stringify(before)}`);
    this.#count(delivery, { node, lane, by: 1 });
    this.requests.begin(node, delivery);
    this.#world.note(`${node} calls ${message.id} #${attempt} ${message.url}`);
  }

  answered(node: string, delivery: Delivery): void {
    const { account, url } = delivery.message;
    this.#count(delivery, { node, lane: laneOf(account, new URL(url).host), by: -1 });
    this.requests.end(delivery);
  }

  /** A node has ended gracefully. */
  stopped(node: string, harmed: boolean): void {
    if (harmed) return;
    for (const state of this.#storage.tables.messages.values()) {
      const leases = state.leasedBy === node && (state.dueAt ?? 0) > this.#world.now;
      this.demand(!leases, `a node that has stopped has nothing leased: ${state.id} by ${node}`);
    }
  }

  #count({ message }: Delivery, { node, lane, by }: { node: string; lane: string; by: number }): void {
    for (const name of [node, `${node} ${lane}`, `${node} ${message.account}`]) {
      this.#calls.set(name, (this.#calls.get(name) ?? 0) + by);
      this.#bytes.set(name, (this.#bytes.get(name) ?? 0) + by * message.body.byteLength);
    }
  }

  #lifeOf(account: string, id: string): Life | null {
    const life = this.lives.get(id) ?? null;
    this.demand(life !== null && life.envelope.account === account, `rows name messages of their own account: ${account} ${id}`);
    return life;
  }

  /** A claim comes when there is something to claim, or when it was woken for something that another has taken. */
  #countClaims({ node, calls, changes }: Case): void {
    this.claims += calls.filter(({ name }) => name === "claim").length;
    if (Object.values(changes).some((list) => list.length > 0)) return this.idleClaims.clear();
    if (!calls.some(({ name }) => name === "claim")) return;
    const idle = (this.idleClaims.get(node) ?? 0) + 1;
    this.idleClaims.set(node, idle);
    this.demand(idle <= 6, `nobody claims again and again when there is nothing to claim: ${node}`);
  }

  /** Every new message has an envelope and a state, and a reason. */
  #noteBirths(of: Case): Set<Life> {
    const { changes } = of;
    const born = new Set<Life>();
    const retried = retriedOf(of);
    const letters = lettersOf(of, this.#storage.tables, this.demand);
    const changedLines = new Set(
      changes.lines.flatMap(({ before, after }) => [before ?? [], after ?? []].flat()).map(({ account, host }) => `${account}\n${host}`),
    );
    for (const { before, after } of changes.envelopes) {
      if (after) {
        this.demand(before === undefined, `an envelope is written once: ${after.id}`);
        born.add(this.#birth(after, { letter: letters.get(after.id), retried: retried.has(after.id), changedLines }));
      }
    }
    for (const dlqId of retried.values()) {
      const isGone = changes.deadLetters.some(({ before, after }) => before?.id === dlqId && !after);
      this.demand(isGone, `what is sent again leaves the queue: ${dlqId}`);
    }
    for (const id of letters.keys()) this.demand(this.lives.has(id), `what is answered is kept: ${id}`);
    return born;
  }

  #birth(envelope: Envelope, { letter, retried, changedLines }: Birth): Life {
    const { now } = this.#world;
    const isScheduled = envelope.scheduleId !== null && !retried;
    const isSaid = isScheduled || envelope.run !== undefined || (envelope.tells !== null && !retried);
    const notBefore = letter ? (letter.notBefore ?? now + (letter.delay ?? 0)) : isSaid ? envelope.notBefore : now;
    const life = new Life({ envelope, notBefore, demand: this.demand });
    this.lives.set(envelope.id, life);
    const { tells } = envelope;
    this.demand(retried || letter !== undefined || tells !== null || isSaid, `every message has a reason: ${envelope.id}`);
    const state = this.#storage.tables.messages.get(`${envelope.account}\n${envelope.id}`);
    // Its run may have been cancelled in the same batch.
    const run = this.#storage.tables.runs.get(`${envelope.account}\n${envelope.run?.run}`);
    this.demand(state !== undefined || typeof run?.endedAt === "number", `a new message is to be sent: ${envelope.id}`);
    const lane = `${envelope.account}\n${new URL(envelope.url).host}`;
    const overtakes = envelope.startedAtOnce && this.#storage.tables.lines.has(lane) && !changedLines.has(lane);
    this.demand(!overtakes, `who comes later stands behind: ${envelope.id}`);
    if (tells && !retried) this.#lifeOf(envelope.account, tells.messageId)?.tell(tells, envelope);
    return life;
  }

  #checkState({ before, after }: Change<"messages">, of: Case): void {
    const row = after ?? before;
    if (!row) return;
    const life = this.#lifeOf(row.account, row.id);
    const lane = laneOf(row.account, row.host);
    const held = this.#held.get(lane) ?? new Set();
    if (after?.line?.startsWith("capacity:")) this.#held.set(lane, held.add(row.id));
    else held.delete(row.id);
    if (!after) return this.demand(life?.ended !== null, `nothing is lost: ${row.id} is gone and has not ended`);
    this.demand((after.state === "held") === (after.dueAt === null), `held means no due time: ${row.id}`);
    const isSent = ["active", "cancelling"].includes(after.state);
    this.demand(isSent === (after.leasedBy !== null), `active means leased: ${row.id}`);
    this.demand(
      after.lost <= maxLost && after.attempts - after.lost <= (life?.envelope.retries ?? 0),
      `attempts stay within their budget: ${row.id}`,
    );
    life?.state(before, after, { now: this.#world.now, names: this.#namesAbout(of, row.id), node: of.node });
  }

  /** The commands of a batch that may change a message, by name. */
  #namesAbout({ calls }: Case, id: string): Set<string> {
    const about = ({ name, input }: Call): boolean => {
      if (name === "giveBack" || name === "renew")
        return (input as { held: { messageId: string }[] }).held.some(({ messageId }) => messageId === id);
      return name !== "settle" || (input as { messageId: string }).messageId === id;
    };
    return new Set(calls.filter(about).map(({ name }) => name));
  }

  /** A report counts when its node had the lease of this very attempt, and once. */
  #checkReports({ node, calls, result, changes }: Case): void {
    const before = new Map(changes.messages.map(({ before }) => [before?.id, before]));
    const counted = new Map<string, number>();
    calls.forEach(({ name, input }, index) => {
      const reply = result.replies[index];
      this.demand(reply !== undefined && !("failed" in reply), `no command fails: ${name} ${JSON.stringify(reply)}`);
      if (name !== "settle" || !reply || !("answer" in reply)) return;
      const { messageId, attempt } = input as { messageId: string; attempt: number };
      if ((reply.answer as { became: string }).became === "late") return;
      const state = before.get(messageId);
      const holds = state?.leasedBy === node && state.attempts === attempt;
      this.demand(holds, `only who has the lease is heard: ${messageId} #${attempt} of ${node}`);
      counted.set(messageId, (counted.get(messageId) ?? 0) + 1);
    });
    const added = changes.log.flatMap(({ before, after }) => (after && !before ? [after] : []));
    const retried = new Set(added.filter(({ states }) => states.includes("RETRY")).map(({ messageId }) => messageId));
    // What is to be sent again may be dropped in the same batch, with its run. That ends no attempt.
    const isDropped = ({ states: [first], messageId }: LogRow): boolean => first === "CANCELLED" && retried.has(messageId);
    const rows = added.flatMap((row) => (endsReportedAttempt(row) && !isDropped(row) ? [row.messageId] : []));
    for (const [id, reports] of counted) {
      this.demand(reports === 1 && rows.filter((row) => row === id).length === 1, `a report is counted once: ${id}`);
    }
  }

  /** What was leased is delivered, by the node that leased it, and nothing else is. */
  #checkDeliveries(of: Case): void {
    const { node, result, changes } = of;
    this.#checkBytes(of);
    for (const { message } of result.deliveries) {
      const { size } = this.#storage.tables.messages.get(`${message.account}\n${message.id}`) ?? {};
      const length = message.body.byteLength;
      const fits = message.run?.kind === "step" ? length <= (size ?? 0) : length === size;
      this.demand(fits, `the size is that of the body, which is sent whole: ${message.id}, ${size}`);
    }
    for (const what of result.faults) this.demand(false, what);
    for (const { before } of changes.accounts)
      for (const key of Object.values(before?.signingKeys ?? {})) this.#replaced.set(key, this.#world.now);
    const leased = changes.messages.flatMap(({ before, after }) => (isLease(before, after) && after ? [after] : []));
    for (const state of leased) {
      const delivered = result.deliveries.filter(({ message, attempt }) => message.id === state.id && attempt === state.attempts);
      this.demand(state.leasedBy === node, `a node leases for itself: ${state.id}`);
      this.demand(delivered.length === 1, `what is leased is sent, once: ${state.id}`);
      const keys = this.#storage.tables.accounts.get(state.account)?.signingKeys;
      // Who was at work at the same time as the change of keys may have read them before.
      this.demand(
        delivered.every(({ signingKey }) => signingKey === keys?.current || this.#replaced.get(signingKey) === this.#world.now),
        `signed with the account's key: ${state.id}`,
      );
    }
    for (const { message } of result.deliveries) {
      this.demand(
        leased.some(({ account, id }) => account === message.account && id === message.id),
        `what is sent is leased: ${message.id}`,
      );
    }
  }

  /** What waited is loaded to be sent up to a limit, and with its size known before. */
  #checkBytes({ calls, result, changes }: Case): void {
    const othersThanWaiting = new Set([
      ...changes.messages.flatMap(({ before, after }) => (before ? [] : (after?.id ?? []))),
      // The envelope of what is reported on is here for its callback.
      ...calls.flatMap(({ name, input }) => (name === "settle" ? (input as { messageId: string }).messageId : [])),
    ]);
    const sizes = result.deliveries.flatMap(({ message }) => (othersThanWaiting.has(message.id) ? [] : message.body.byteLength));
    const bytes = sizes.reduce((sum, size) => sum + size, 0);
    // The first one may have been larger than all that is allowed.
    const isBounded = bytes - Math.max(0, ...sizes) <= this.#total.bytes.perBatch;
    this.demand(isBounded, `a batch loads no more than it may: ${bytes} bytes in ${sizes.length} messages`);
  }

  #checkDeadLetters({ changes }: Case): void {
    for (const { before, after } of changes.deadLetters) {
      if (before || !after) continue;
      const life = this.#lifeOf(after.account, after.messageId);
      this.demand(life?.ended === "failed" && life.dlqId === after.id, `a dead letter is a message that failed: ${after.id}`);
      if (life) life.deadLetters++;
    }
  }

  /** Whoever waits in a line stands in one that is looked at. */
  #checkLines(changes: Changes): void {
    const { lines } = this.#storage.tables;
    const lanes = [
      ...changes.messages.flatMap(({ before, after }) => after ?? before ?? []),
      ...changes.lines.flatMap(({ before, after }) => after ?? before ?? []),
    ];
    for (const { account, host } of lanes) {
      const held = this.#held.get(laneOf(account, host))?.size ?? 0;
      this.demand(held === 0 || lines.has(`${account}\n${host}`), `held messages have a line: ${held} to ${host}`);
    }
  }

  /** No schedule is forgotten. It may have to wait for a node that has a hand free. */
  checkSchedules(): void {
    for (const { id, dueAt } of this.#storage.tables.schedules.values()) {
      this.demand((dueAt ?? Infinity) > this.#world.now - 300_000, `schedules fire when they are due: ${id} was due at ${dueAt}`);
    }
  }

  /** Hours after the last trouble: whoever waits in line does so because of somebody who is on the way, or by the will of people. */
  checkHeldBack(): void {
    for (const state of this.#storage.tables.messages.values()) {
      this.demand(this.#isHeldBack(state), `nobody waits in a line that is open: ${state.id} in ${state.line}`);
    }
  }

  #isHeldBack({ account, line }: MessageState): boolean {
    const { flows, slots, messages } = this.#storage.tables;
    const flow = flows.get(`${account}\n${line}`);
    if (!flow) return line === null || line.startsWith("capacity:");
    const { paused, rate, period, running, onward = 0, windowStart, windowUsed } = flow;
    const isWindowFull = rate !== null && windowUsed >= rate && this.#world.now < windowStart + period;
    if (paused || isWindowFull) return true;
    if (/^(key|account|endpoint):/.test(line ?? "")) return running + onward > 0;
    const taken = new Set(
      [...slots.values()].flatMap((slot) => (slot.account === account && `queue:${slot.queue}` === line ? slot.id : [])),
    );
    return [...messages.values()].some((one) => one.slot !== null && taken.has(one.slot) && this.#isHeldBack(one));
  }

  /** When all is quiet: nothing is left to do. */
  checkQuiet(): void {
    for (const life of this.lives.values()) life.checkEnd();
    const { tables } = this.#storage;
    const { messages, lines } = tables;
    this.#flows.checkQuiet({ tables, demand: this.demand });
    this.runs.checkQuiet(tables);
    this.demand(messages.size === 0, `every message ends: ${messages.size} have not`);
    this.demand(lines.size === 0, `a line ends with its last message: ${lines.size} have not`);
  }

  /** When everything is past its time: nothing is left. */
  checkEmpty(): void {
    const { accounts: _accounts, dayCounts: _dayCounts, ...tables } = this.#storage.tables;
    for (const [name, rows] of Object.entries(tables)) {
      this.demand(rows.size === 0, `history ends: ${rows.size} ${name} are left, first ${[...rows.keys()][0]?.replace("\n", " ")}`);
    }
  }
}

type Birth = { letter: Letter | undefined; retried: boolean; changedLines: ReadonlySet<string> };

const endsReportedAttempt = (row: LogRow): boolean => ["ERROR", "DELIVERED", "CANCELLED"].includes(row.states[0] ?? "") && !isLost(row);
