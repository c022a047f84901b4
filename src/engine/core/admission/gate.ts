import type { MessageState } from "../model/messageState.ts";

/**
 * A gate is something that a due message must pass before it is sent. A message passes its gates in the order
 * of `gateKinds`, and is held in the waitlist of the first closed gate.
 *
 * The first four gates have a limiter, a row of `limiters`. Its counters are sums over the other rows of the
 * account:
 *
 * - `running` is, for a queue, the number of its slots; for any other gate, the number of leased messages
 *   that it counts.
 * - `waiting` is the number of held messages in the waitlist of the gate.
 * - `waitingDownstream` is the number of held messages that wait for a limit of their account (`endpoint` or
 *   `account`) and reserve a slot at this earlier gate. They always reserve a slot at their key, and also
 *   at their endpoint if `countedToEndpoint` is set. For messages without a reservation, a reserved slot
 *   counts as taken.
 *
 * Only `counters.ts` changes these counters. `test/model/counters.ts` computes them from the rows.
 */
export type Gate = Queue | FlowControlKey | AccountEndpoint | WholeAccount | Capacity;

/** A slot of a queue, kept until the message and its callbacks have finished. */
export type Queue = { readonly kind: "queue"; readonly name: string };
/** The parallelism and the rate of a flow-control key. */
export type FlowControlKey = { readonly kind: "key"; readonly name: string };
/** The deliveries of the account to one endpoint, on all nodes. `name` is the endpoint. */
export type AccountEndpoint = { readonly kind: "endpoint"; readonly name: string };
/** All deliveries of the account, on all nodes. */
export type WholeAccount = { readonly kind: "account"; readonly name: "" };
/** Delivery capacity of this node for a host. `name` is the host. This gate has no limiter. */
export type Capacity = { readonly kind: "capacity"; readonly name: string };

/** A gate that counts in a row of `limiters`. */
export type LimiterGate = Exclude<Gate, Capacity>;
/** A limit of the account itself. A message that is held there keeps its slots at the gates before it. */
export type AccountLimit = AccountEndpoint | WholeAccount;

/** The kinds of gates, in the order in which a message passes them. */
export const gateKinds = ["queue", "key", "endpoint", "account", "capacity"] as const;
/** The kind of a gate. */
export type GateKind = (typeof gateKinds)[number];

/** Reports whether a message comes to gate `a` before gate `b`. */
export const isBefore = (a: Gate, b: Gate): boolean => gateKinds.indexOf(a.kind) < gateKinds.indexOf(b.kind);

/** Returns the gate of a queue. */
export const queueGate = (name: string): Queue => ({ kind: "queue", name });
/** Returns the gate of a flow-control key. */
export const keyGate = (name: string): FlowControlKey => ({ kind: "key", name });
/** The gate of an account's limit in total. */
export const accountGate: WholeAccount = { kind: "account", name: "" };
/** Returns the gate of this node's delivery capacity for a host. */
export const capacityGate = (host: string): Capacity => ({ kind: "capacity", name: host });

/** Returns the gate of an account's limit for the endpoint of a message. */
export const endpointGate = ({ endpoint }: Pick<MessageState, "endpoint">): AccountEndpoint => ({
  kind: "endpoint",
  name: endpoint,
});

/**
 * Returns the id under which a gate is stored: as the id of its limiter, and as the waitlist of the messages
 * that it holds.
 */
export const formatGate = ({ kind, name }: Gate): string => `${kind}:${name}`;

/** Returns the gate that is stored under an id. Throws if no gate has such an id. */
export function parseGate(id: string): Gate {
  const end = id.indexOf(":");
  const start = id.slice(0, end);
  const kind = gateKinds.find((one) => one === start);
  if (kind === undefined)
    throw new Error(`gate ${id}: must begin with one of ${gateKinds.join(", ")} and a colon`);
  return kind === "account" ? accountGate : { kind, name: id.slice(end + 1) };
}

/** Returns the gate of the waitlist that a message is held in, or null. */
export const readWaitlist = ({ waitlist }: Pick<MessageState, "waitlist">): Gate | null =>
  waitlist === null ? null : parseGate(waitlist);

/** Reports whether a gate has a limiter. All gates but delivery capacity do. */
export const hasLimiter = (gate: Gate): gate is LimiterGate => gate.kind !== "capacity";

/** Reports whether a gate is a limit of the account: to an endpoint, or in total. */
export const isAccountLimit = (gate: Gate): gate is AccountLimit =>
  gate.kind === "endpoint" || gate.kind === "account";

/** Reports whether two gates are the same. */
export const isSameGate = (a: Gate, b: Gate): boolean => a.kind === b.kind && a.name === b.name;

/** Returns two texts. The ids of all gates of one kind sort between them, and no other ids do. */
export const listGateBounds = (kind: GateKind): { after: string; before: string } => ({
  after: `${kind}:`,
  before: `${kind};`,
});

/**
 * The order in which a transaction locks limiters. It differs from the order of the gates. A batch knows the
 * queues and keys of its messages first, then the accounts, and last the endpoints of the messages in a
 * waitlist. If all transactions lock limiters in this order, no two of them wait for each other.
 */
const lockOrder: readonly GateKind[] = ["key", "queue", "account", "endpoint", "capacity"];

/** Compares the ids of two limiters of one account for the order in which a transaction locks them. */
export function compareForLocking(a: string, b: string): number {
  const order = lockOrder.indexOf(parseGate(a).kind) - lockOrder.indexOf(parseGate(b).kind);
  return order !== 0 ? order : a < b ? -1 : a > b ? 1 : 0;
}
