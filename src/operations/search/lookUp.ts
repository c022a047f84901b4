import type { AccountId } from "../../engine/core/values/basics.ts";
import type { Gate } from "../../engine/core/admission/gate.ts";
import {
  formatGate,
  keyGate,
  listGateBounds,
  parseGate,
  queueGate,
} from "../../engine/core/admission/gate.ts";
import { isDlqId, isId, readIdTime } from "../../engine/core/values/ids.ts";
import type { SearchedText } from "../../engine/core/search/textSearch.ts";
import { findText } from "../../engine/core/search/textSearch.ts";
import type { Queries } from "../../engine/store/catalog/queries.ts";
import type { FoundThing } from "./found.ts";

/** The number of queues, keys, schedules, URL groups and sources whose names are searched, of each kind. */
export const maxNamed = 500;
/** The runs with one id that are found. */
const maxRuns = 5;

/** A string to look up in an account. */
export type LookUp = { account: AccountId; text: string };

/** Returns the things whose id or name is the text: in messages, runs and events. */
export async function findById(read: Queries, { account, text }: LookUp): Promise<FoundThing[]> {
  const [message, deadLetter, runs, [waiter]] = await Promise.all([
    isId(text) ? read.message(account, text) : null,
    isDlqId(text) ? read.deadLetter(account, text) : null,
    read.runs({ account, filter: { runIds: [text] }, cursor: null, count: maxRuns }),
    read.listEventWaiters(account, text, { limit: 1 }),
  ]);
  const dlqId = message?.ended?.dlqId ?? deadLetter?.deadLetter.id ?? null;
  const url = (message?.message ?? deadLetter?.message)?.url ?? null;
  const isKnown = message !== null && (message.state !== null || message.finishedAt !== null);
  const exact = { part: "id", excerpt: text } as const;
  const found: FoundThing[] = [];
  if (isKnown)
    found.push({ kind: "message", id: message.message.id, at: message.message.createdAt, url, ...exact });
  if (dlqId !== null) found.push({ kind: "deadLetter", id: dlqId, at: readIdTime(dlqId), url, ...exact });
  for (const run of runs.runs)
    found.push({ kind: "run", id: run.runId, at: run.createdAt, url: run.url, ...exact });
  if (waiter) found.push({ kind: "event", id: text, at: waiter.createdAt, url: null, ...exact });
  return found;
}

/** Returns the configured things whose name, id or URL contains the text, exact names first. */
export async function findNamed(read: Queries, { account, text }: LookUp): Promise<FoundThing[]> {
  const range = { account, limit: maxNamed };
  const named = [queueGate(text), keyGate(text)].map(formatGate);
  const [exactly, limiters, schedules, groups, sources] = await Promise.all([
    Promise.all(named.map((id) => read.findResource("limiters", account, id))),
    Promise.all(
      (["queue", "key"] as const).map((kind) =>
        read.listResources("limiters", { ...range, ...listGateBounds(kind) }),
      ),
    ),
    read.listResources("schedules", range),
    read.listResources("urlGroups", range),
    read.listResources("sources", range),
  ]);
  const found = [
    ...[...exactly, ...limiters.flat()].flatMap((limiter) =>
      limiter ? describeGate(parseGate(limiter.id)) : [],
    ),
    ...schedules.map(({ id, messageInput, createdAt }): Named => ({
      thing: { kind: "schedule", id, at: createdAt, url: messageInput.url || null },
      texts: [["id", id], ...toTexts("label", messageInput.labels), ["url", messageInput.url]],
    })),
    ...groups.map(({ name, endpoints, updatedAt }): Named => ({
      thing: { kind: "urlGroup", id: name, at: updatedAt, url: null },
      texts: [
        ["id", name],
        ...toTexts(
          "url",
          endpoints.map(({ url }) => url),
        ),
      ],
    })),
    ...sources.map(({ id, name, destination, createdAt }): Named => ({
      thing: { kind: "source", id, at: createdAt, url: destination },
      texts: [
        ["id", id],
        ["label", name],
        ["url", destination],
      ],
    })),
  ];
  const matching = new Map<string, FoundThing>();
  for (const { thing, texts } of found) {
    const match = findText(texts, text);
    if (match) matching.set(`${thing.kind} ${thing.id}`, { ...thing, ...match });
  }
  return [...matching.values()].sort((a, b) => Number(b.id === text) - Number(a.id === text));
}

type Named = { thing: Omit<FoundThing, "part" | "excerpt">; texts: readonly SearchedText[] };

/** Returns a queue or key as it is searched. No other gate is read. */
function describeGate({ kind, name }: Gate): Named[] {
  if (kind !== "queue" && kind !== "key") return [];
  const thing = { kind: kind === "key" ? "flowControlKey" : kind, id: name, at: null, url: null } as const;
  return [{ thing, texts: [["id", name]] }];
}

const toTexts = (part: SearchedText[0], all: readonly string[]): SearchedText[] =>
  all.map((text) => [part, text]);
