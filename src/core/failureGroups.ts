import type { Answer, Bytes, Millis, StepHead } from "./message.ts";
import { initialSlot } from "./run.ts";

/** A failed run, as far as it is told apart from others. */
export type FailureSeen = { dlqId: string; time: Millis; url: string; error: string } & FailedStep;

/** The step that failed, or where that cannot be told, the last one before it; by their names. */
export type FailedStep = { stepName: string | null; afterStep: string | null };

/** Failures that look alike. `error` has `…` for whatever differs from one to the next. */
export type FailureGroup = FailedStep & { url: string; error: string; count: number; firstAt: Millis; lastAt: Millis; dlqId: string };

/** Puts together what failed at the same step with the same error; most frequent first, then the one that failed last. `dlqId`: the latest. */
export function groupFailures(failures: Iterable<FailureSeen>): FailureGroup[] {
  const groups = new Map<string, FailureGroup>();
  for (const { dlqId, time, url, stepName, afterStep, ...seen } of failures) {
    const error = normalError(seen.error);
    const key = JSON.stringify([url, stepName, afterStep, error]);
    const known = groups.get(key) ?? { url, stepName, afterStep, error, count: 0, firstAt: time, lastAt: time, dlqId };
    groups.set(key, {
      ...{ ...known, count: known.count + 1, firstAt: Math.min(known.firstAt, time), lastAt: Math.max(known.lastAt, time) },
      dlqId: dlqId > known.dlqId ? dlqId : known.dlqId,
    });
  }
  return [...groups.values()].sort((a, b) => b.count - a.count || (a.dlqId < b.dlqId ? 1 : -1));
}

/** What is looked at, and shown, of an error. */
const longest = 300;

/**
 * An error without what differs from one time to the next: quoted texts, identifiers, numbers, hexadecimals. The first
 * line of it, cut. Texts that are equal then are taken for the same error.
 */
export function normalError(text: string): string {
  const [line = ""] = text
    .trim()
    .slice(0, 4 * longest)
    .split(/[\r\n]/, 1);
  const plain = line
    .replace(/"[^"]*"|`[^`]*`|(?<![\p{L}\p{N}])'[^']*'(?![\p{L}\p{N}])/gu, "…")
    .replace(/[\p{L}\p{N}_-]+/gu, (word) => (isName(word) ? word : "…"))
    .replace(/…([.:/,-]?…)+/g, "…")
    .replace(/\s+/g, " ")
    .trim();
  return plain.length > longest ? `${plain.slice(0, longest)}…` : plain;
}

/** A word that is the same each time: no number, and nothing that a program made up. */
const isName = (word: string): boolean => !/\p{N}/u.test(word) && !/^[a-f]{8,}$/i.test(word);

/** What is known of the step at which a run failed: by the message that failed, and the step that it carried. */
export function failedStepOf(slot: string | undefined, head: StepHead | null | undefined): FailedStep {
  const name = head ? head.stepName : null;
  // A result was sent for the next step to be run.
  if (slot === undefined || slot === initialSlot || slot.startsWith("r"))
    return { stepName: null, afterStep: slot === initialSlot ? null : name };
  return { stepName: name, afterStep: null };
}

/** Of a longer answer no more is looked at. */
const mostRead = 64 * 1024;

/** Why a run failed, in one text: what the house says, or else the endpoint. */
export function reasonOf({ error, status, body }: Pick<Answer, "error" | "status" | "body">): string {
  if (error !== null && error !== "") return error;
  return sayingOf(body) ?? `the endpoint answered with status ${status ?? 0}`;
}

/** Clients answer with `{"error": "TypeError", "message": "…"}`. */
function sayingOf(body: Bytes): string | null {
  if (body.byteLength > mostRead) return null;
  try {
    const said: unknown = JSON.parse(new TextDecoder().decode(body));
    if (typeof said !== "object" || said === null || !("message" in said) || typeof said.message !== "string") return null;
    const kind = "error" in said && typeof said.error === "string" && said.error !== "Error" ? `${said.error}: ` : "";
    return `${kind}${said.message}`.slice(0, 4 * longest) || null;
  } catch {
    return null;
  }
}
