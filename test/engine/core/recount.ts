import type { CommandResult, CommandName, CommandInput } from "../../../src/engine/store/catalog/commands.ts";
import type { FlowControl } from "../../../src/engine/core/model/sendSettings.ts";
import type { MessageInput } from "../../../src/engine/core/model/message.ts";
import type { MessageState } from "../../../src/engine/core/model/messageState.ts";
import type { Outcome } from "../../../src/engine/core/model/attempt.ts";
import type { Limiter } from "../../../src/engine/core/model/limiter.ts";
import { listWrongCounters } from "../../model/counters.ts";
import type { Memory } from "../../model/memoryStore.ts";
import { CommandRunner } from "./commandRunner.ts";

/**
 * Returns the values that differ from a recount of the rows: counters of limiters, holders of slots, and
 * states of held messages.
 */
export function findDisagreements({ tables }: Memory): string[] {
  const messages = [...tables.messages.values()];
  const slots = [...tables.queueSlots.values()];
  const limiters = [...tables.limiters.values()];
  /** Returns the endpoint from the URL itself, unless that is too long. */
  const endpointOf = ({ account, id, endpoint }: MessageState): string => {
    const { origin, pathname } = new URL(tables.storedMessages.get(`${account}\n${id}`)?.url ?? "");
    const own = origin + pathname;
    return own.length > 512 ? endpoint : own;
  };
  const wrong = listWrongCounters({ messages, slots, flows: limiters, endpointOf });
  const compare = (what: string, counted: unknown, found: unknown): void => {
    if (counted !== found) wrong.push(`${what}: ${String(counted)} instead of ${String(found)}`);
  };
  const has = (account: string, id: string): boolean => tables.limiters.has(`${account}\n${id}`);
  for (const { account, id, queue, holders } of slots) {
    compare(
      `holders of slot ${id}`,
      holders,
      messages.filter((message) => message.account === account && message.slot === id).length,
    );
    // A slot without a queue is left over from a deleted queue.
    if (queue !== "") compare(`queue of slot ${id} there`, has(account, `queue:${queue}`), true);
  }
  for (const { account, id, state, leasedBy, waitlist, dueAt, slot, flowControlKey } of messages) {
    const isSent = ["active", "ending", "acknowledging", "cancelling"].includes(state);
    compare(`lease of ${id} set`, leasedBy !== null, isSent);
    compare(`line of ${id} set`, waitlist !== null, state === "held");
    compare(`dueAt of ${id} null`, dueAt === null, state === "held");
    if (slot !== null) compare(`slot of ${id} there`, tables.queueSlots.has(`${account}\n${slot}`), true);
    if (waitlist !== null && !waitlist.startsWith("capacity:"))
      compare(`flow of the line of ${id} there`, has(account, waitlist), true);
    if (flowControlKey !== null && leasedBy !== null)
      compare(`key of ${id} there`, has(account, `key:${flowControlKey}`), true);
  }
  return wrong;
}

/**
 * Recounts after each command, and throws on differences and faults. Messages are named by their first label.
 */
export class RecountedCommandRunner extends CommandRunner {
  static override async open(): Promise<RecountedCommandRunner> {
    const broker = new RecountedCommandRunner();
    const keys = { current: "sig_1", next: "sig_2" };
    await broker.run("createAccount", {
      id: "acme",
      name: "acme",
      password: "",
      token: "t",
      tokenHash: "h",
      signingKeys: keys,
    });
    return broker;
  }

  /** The deliveries since `listStarted` was last called, by label; callbacks by their URL. */
  readonly #started: string[] = [];
  readonly #ids = new Map<string, string>();

  override async run<N extends CommandName>(name: N, input: CommandInput<N>): Promise<CommandResult<N>> {
    const answer = await super.run(name, input);
    const wrong = [...findDisagreements(this.memory), ...this.faults];
    if (wrong.length > 0) throw new Error(`after ${name}: ${wrong.join("; ")}`);
    for (const { message } of this.deliveries) {
      const known = message.labels[0] ?? message.url;
      this.#ids.set(known, message.id);
      this.#started.push(known);
    }
    return answer;
  }

  /** Publishes a message for each name, one after another. */
  async send(names: string, input: Partial<MessageInput> = {}): Promise<void> {
    for (const name of names.split(" "))
      this.#ids.set(name, await this.publish({ labels: [name], ...input }));
  }

  /** Claims until nothing is due now, and returns the deliveries that have started since the last call. */
  async listStarted(): Promise<string> {
    for (let turn = 0; ; turn++) {
      if (turn === 100) throw new Error("claims do not end");
      const { more } = await this.run("claim", { limit: 100 });
      if (!more && !this.#isDue()) return this.#started.splice(0).join(" ");
    }
  }

  #isDue(): boolean {
    const { messages, limiters } = this.memory.tables;
    return [...messages.values(), ...limiters.values()].some(
      ({ dueAt }) => dueAt !== null && dueAt <= this.now,
    );
  }

  /** Settles attempts of these messages, by default as delivered. */
  async end(names: string, outcome: Partial<Outcome> = { status: 200 }): Promise<void> {
    for (const name of names.split(" ")) await this.settle(this.id(name), outcome);
  }

  /** Cancels these messages. */
  async cancel(names: string): Promise<void> {
    await this.run("cancel", { account: "acme", messageIds: names.split(" ").map((name) => this.id(name)) });
  }

  /** Returns the id of the message with this name. */
  id(name: string): string {
    const id = this.#ids.get(name);
    if (id === undefined) throw new Error(`nothing is known by the name ${name}`);
    return id;
  }

  /** Returns a limiter by its id, or undefined if it does not exist. */
  findLimiter(id: string): Limiter | undefined {
    return this.memory.tables.limiters.get(`acme\n${id}`);
  }

  /** Returns how many messages of a limiter are running and waiting, or null if it does not exist. */
  counts(id: string): [number, number] | null {
    const limiter = this.findLimiter(id);
    return limiter ? [limiter.running, limiter.waiting] : null;
  }
}

/** Returns the flow control of an input: a key with these limits. */
export const makeFlowControl = (
  key: string,
  limits: Partial<FlowControl> = {},
): Pick<MessageInput, "flowControl"> => ({
  flowControl: { parallelism: null, rate: null, period: null, ...limits, key },
});
