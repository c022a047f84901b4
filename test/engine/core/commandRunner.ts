import type { CommandResult, CommandName, CommandInput } from "../../../src/engine/store/catalog/commands.ts";
import type { DeliveryCapacity } from "../../../src/engine/core/admission/capacity.ts";
import { createIdGenerator } from "../../../src/engine/core/values/ids.ts";
import { parseHost } from "../../../src/engine/core/values/url.ts";
import type { Account } from "../../../src/engine/core/model/account.ts";
import type { Delivery } from "../../../src/engine/core/model/delivery.ts";
import type { LeaseRef, MessageState } from "../../../src/engine/core/model/messageState.ts";
import type { ClientChoice } from "../../../src/engine/core/model/runPost.ts";
import type { MessageInput } from "../../../src/engine/core/model/message.ts";
import type { LogRow } from "../../../src/engine/core/model/logRow.ts";
import type { Outcome } from "../../../src/engine/core/model/attempt.ts";
import type { WaitPost } from "../../../src/engine/core/commands/wait.ts";
import { hour } from "../../../src/engine/core/values/time.ts";
import type { StoreBackend } from "../../../src/engine/store/batch/groupCommit.ts";
import { Memory, memoryParts } from "../../model/memoryStore.ts";
import { withSentBody } from "../../sentBody.ts";

/** 1 January 2026, noon. */
export const noon = Date.UTC(2026, 0, 1, 12);

/** A capacity that no test exhausts. */
export const ampleCapacity: DeliveryCapacity = {
  free: 1000,
  perHost: 1000,
  backlog: false,
  runningByLane: new Map(),
  bytes: { free: 2 ** 30, perBatch: 2 ** 25, byLane: {} },
};
/** A capacity of no deliveries. */
export const noCapacity: DeliveryCapacity = { ...ampleCapacity, free: 0 };

/**
 * Runs commands one after another, at the time and with the capacity that the test sets, and shows their
 * results.
 */
export class CommandRunner {
  now = noon;
  node = "nod_a";
  capacity: DeliveryCapacity = ampleCapacity;
  skipsCallsOf: ClientChoice | undefined;
  runsOn = true;
  readonly memory = new Memory();
  /** The deliveries of the last command. */
  deliveries: readonly Delivery[] = [];
  /** The attempts that the last command aborted. */
  calledOff: readonly LeaseRef[] = [];
  /** The deliveries in flight that the last command settled. */
  settledLeases: readonly LeaseRef[] = [];
  /** The faults that the last command reported. */
  faults: readonly string[] = [];
  readonly #createParts: (node: string) => StoreBackend;

  constructor() {
    const random = (): number => 0.5;
    const source = { node: "", now: () => this.now, random, newId: createIdGenerator(random) };
    this.#createParts = (node) =>
      memoryParts(
        { ...source, node, skipsCallsOf: this.skipsCallsOf, runsOn: () => this.runsOn },
        this.memory,
      );
  }

  /** Returns a runner with one account, `acme`. */
  static async open(): Promise<CommandRunner> {
    const broker = new CommandRunner();
    await broker.run("createAccount", { ...acme });
    return broker;
  }

  /** Runs a command. Throws its refusal or error. */
  async run<N extends CommandName>(name: N, input: CommandInput<N>): Promise<CommandResult<N>> {
    const { replies, deliveries, abortedLeases, settledLeases, faults } = await this.#createParts(
      this.node,
    ).runBatch([{ name, input }], this.capacity);
    this.deliveries = deliveries.map(withSentBody);
    this.calledOff = abortedLeases;
    this.settledLeases = settledLeases;
    this.faults = faults;
    const [reply] = replies;
    if (reply && "answer" in reply) return reply.answer as CommandResult<N>;
    throw new Error(JSON.stringify(reply));
  }

  /** Runs several commands as one batch. Throws if one of them is refused or fails. */
  async runAll(
    calls: readonly { [N in CommandName]: { name: N; input: CommandInput<N> } }[CommandName][],
  ): Promise<void> {
    const { replies } = await this.#createParts(this.node).runBatch(calls, this.capacity);
    const refused = replies.find((reply) => !("answer" in reply));
    if (refused) throw new Error(JSON.stringify(refused));
  }

  /** Publishes one message and returns its id. */
  async publish(input: Partial<MessageInput> = {}): Promise<string> {
    const [result] = await this.run("publish", { account: "acme", inputs: [makeInput(input)] });
    if (result && "messageId" in result) return result.messageId;
    throw new Error(JSON.stringify(result));
  }

  /** Settles an attempt of a message. */
  async settle(messageId: string, outcome: Partial<Outcome> = {}): Promise<string> {
    const state = this.state(messageId);
    const { became } = await this.run(
      "settle",
      makeOutcome({
        messageId,
        attempt: state?.attempts ?? 0,
        host: state?.host ?? "shop.example",
        ...outcome,
      }),
    );
    return became;
  }

  /** Returns the state of a message, or undefined if it has finished. */
  state(id: string): MessageState | undefined {
    return this.memory.tables.messages.get(`acme\n${id}`);
  }

  /** Returns the states in the log of a message, after CREATED. */
  log(id: string): string {
    return this.logRows(id)
      .flatMap(({ states }) => states)
      .join(" ");
  }

  /** Returns the log rows of a message. */
  logRows(id: string): LogRow[] {
    return [...this.memory.tables.log.values()].filter(({ messageId }) => messageId === id);
  }

  /** Returns the messages that report on a message, in order of acceptance. */
  listReporters(id: string) {
    return [...this.memory.tables.storedMessages.values()].filter(
      ({ reportsOn }) => reportsOn?.messageId === id,
    );
  }

  /** The dead letters of all accounts. */
  get deadLetters() {
    return [...this.memory.tables.deadLetters.values()];
  }
}

const acme: Omit<Account, "createdAt"> = {
  id: "acme",
  name: "acme",
  password: "",
  token: "token",
  tokenHash: "hash",
  signingKeys: { current: "sig_1", next: "sig_2" },
};

/** Returns a string in UTF-8. */
export const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

/** Returns an input for a publish with these settings. */
export const makeInput = (input: Partial<MessageInput> = {}): MessageInput => ({
  brand: "svc",
  url: "https://shop.example/hook",
  method: "POST",
  headers: [],
  body: bytes("hello"),
  retries: null,
  retryDelay: null,
  timeout: null,
  flowControl: null,
  callback: null,
  failureCallback: null,
  delay: null,
  notBefore: null,
  deduplication: null,
  group: null,
  endpoint: null,
  queue: null,
  scheduleId: null,
  labels: [],
  redaction: null,
  callerIp: null,
  reportsOn: null,
  ...input,
});

export { defaultCallback as callbackTo } from "../../../src/engine/core/deadLetters/overrides.ts";

/** Returns a post of a run that waits an hour for an event. */
export const makeEventWait = (event: string, stepId: number): WaitPost => ({
  kind: "event",
  event,
  url: "https://app.example/order",
  headers: [],
  given: [],
  timeout: "1h",
  wait: hour,
  timeoutUrl: "https://app.example/order",
  timeoutHeaders: [],
  timeoutGiven: [],
  step: { stepId, stepName: "w", stepType: "Wait", concurrent: 1 },
});

/** Returns the outcome of an attempt, by default a failure with status 500. */
export const makeOutcome = (outcome: Partial<Outcome> & { messageId: string }): Outcome => ({
  account: "acme",
  host: parseHost("https://shop.example"),
  attempt: 0,
  status: 500,
  headers: [],
  body: bytes("no"),
  error: null,
  took: 5,
  ...outcome,
});
