import type { AccountChange } from "../model/account.ts";
import type { Actor, AuditNote } from "../model/auditEntry.ts";
import type { Decision } from "../decision/command.ts";
import { parseGate } from "../admission/gate.ts";
import type { AccountId } from "../values/basics.ts";

/** The caller of a command. It is present only if the audit log must record the call. */
export type ActorInput = { by?: Actor };

/**
 * Returns the decision with an audit entry that names the caller. The entry is written in the same draft, so
 * it exists if and only if the change has happened. `makeNote` describes the change. It returns null if
 * nothing has changed, for example if a paused queue is paused. Without `by`, nothing is recorded.
 */
export function audited<Input extends object, Answer>(
  decision: Decision<Input, Answer>,
  makeNote: (input: Input, answer: Answer) => AuditNote | null,
): Decision<Input & ActorInput, Answer> {
  return {
    ...decision,
    decide: ({ by, ...rest }, draft, moment) => {
      // The rest is the input of the decision, which does not know `by`.
      const input = rest as unknown as Input;
      const answer = decision.decide(input, draft, moment);
      const note = by === undefined || !draft.hasChanged() ? null : makeNote(input, answer);
      if (by !== undefined && note !== null)
        draft.put("audit", {
          account: readAccount(input),
          id: moment.newId("aud"),
          time: moment.now,
          by,
          ...note,
        });
      return answer;
    },
  };
}

/** Returns the account of a command. Commands about an account itself name it by `id`. */
const readAccount = (input: { account?: AccountId; id?: AccountId }): AccountId =>
  input.account ?? input.id ?? "";

type Named = { id: string } | { name: string } | { key: string };

const readName = (input: Named): string =>
  "key" in input ? input.key : "name" in input ? input.name : input.id;

/**
 * Makes a note about something that has an id, a name or a key. Returns null if the answer says that nothing
 * was found.
 */
export const noteNamed =
  (action: string) =>
  (input: Named, answer: unknown): AuditNote | null =>
    isNoChange(answer) ? null : { what: action, object: readName(input) };

/** Like `noteNamed`, and lists the fields that were changed. */
export const noteChange =
  (action: string) =>
  (input: Named & { change: object }, answer: unknown): AuditNote | null =>
    isNoChange(answer) ? null : { what: action, object: readName(input), fields: listFields(input.change) };

/** Makes a note about a queue or a key; the id of its limiter says which. */
export const noteLimiter =
  (verb: string) =>
  ({ id }: { id: string }, answer: unknown): AuditNote | null => {
    const { kind, name } = parseGate(id);
    return isNoChange(answer)
      ? null
      : { what: `${kind === "key" ? "flowControl" : "queue"}.${verb}`, object: name };
  };

/** Makes a note with the number of things that the command changed. Returns null if it changed nothing. */
export const noteMany =
  <Input, Answer>(
    action: string,
    named: (input: Input) => readonly string[],
    count: (answer: Answer) => number,
  ) =>
  (input: Input, answer: Answer): AuditNote | null =>
    count(answer) === 0 ? null : { what: action, object: named(input)[0] ?? null, count: count(answer) };

/** Makes a note about the account itself. */
export const noteAccount = (action: string) => (): AuditNote => ({ what: action, object: null });

/** Makes a note about a change of an account, by the operator or by its owner. */
export const noteAccountChange = (change: AccountChange): AuditNote => {
  const [only, ...others] = Object.keys(change);
  if (only === "state" && others.length === 0)
    return { what: change.state === "passive" ? "account.disable" : "account.enable", object: null };
  const limits = Object.keys(change.limits ?? {}).map((name) => `limits.${name}`);
  return {
    what: "account.change",
    object: null,
    fields: listFields(change).flatMap((name) => (name === "limits" ? limits : name)),
  };
};

/** Returns the names of the given fields. A secret is named and never shown. */
export const listFields = (change: object): string[] =>
  Object.keys(change).map((name) => (name === "secretHash" ? "secret" : name));

function isNoChange(answer: unknown): boolean {
  if (answer === null) return true;
  const found = typeof answer === "object" && "deleted" in answer ? answer.deleted : true;
  return found === false || found === 0;
}
