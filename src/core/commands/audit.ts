import type { AccountChange } from "./account.ts";
import type { Actor, AuditNote } from "../model/auditEntry.ts";
import type { Decision } from "../decision/command.ts";
import { parseGate } from "../admission/gate.ts";
import type { AccountId } from "../model/message.ts";

/** What a command is given besides, when somebody asks for it whose doing is to be kept. */
export type ActorInput = { by?: Actor };

/**
 * The same decision, which also keeps who asked for it: in the same draft, so that there is an entry if, and only if, the
 * change has happened. `makeNote` says what was done; null when nothing was, as where what is to be paused is paused already. Without
 * `by` nothing is kept.
 */
export function audited<Input extends object, Answer>(
  decision: Decision<Input, Answer>,
  makeNote: (input: Input, answer: Answer) => AuditNote | null,
): Decision<Input & ActorInput, Answer> {
  return {
    ...decision,
    decide: ({ by, ...rest }, draft, moment) => {
      // What is left is the input without `by`, which no decision knows of.
      const input = rest as unknown as Input;
      const answer = decision.decide(input, draft, moment);
      const note = by === undefined || !draft.hasChanged() ? null : makeNote(input, answer);
      if (by !== undefined && note !== null)
        draft.put("audit", { account: readAccount(input), id: moment.newId("aud"), time: moment.now, by, ...note });
      return answer;
    },
  };
}

/** An account is named by its id where it is what the command is about. */
const readAccount = (input: { account?: AccountId; id?: AccountId }): AccountId => input.account ?? input.id ?? "";

type Named = { id: string } | { name: string } | { key: string };

const readName = (input: Named): string => ("key" in input ? input.key : "name" in input ? input.name : input.id);

/** Of what is named by its id, name or key. An answer that says that there was none is no change. */
export const noteNamed =
  (action: string) =>
  (input: Named, answer: unknown): AuditNote | null =>
    isNoChange(answer) ? null : { what: action, object: readName(input) };

/** The same, and what was given anew. */
export const noteChange =
  (action: string) =>
  (input: Named & { change: object }, answer: unknown): AuditNote | null =>
    isNoChange(answer) ? null : { what: action, object: readName(input), fields: listFields(input.change) };

/** Of a queue or a key, as its id says. */
export const noteLimiter =
  (verb: string) =>
  ({ id }: { id: string }, answer: unknown): AuditNote | null => {
    const { kind, name } = parseGate(id);
    return isNoChange(answer) ? null : { what: `${kind === "key" ? "flowControl" : "queue"}.${verb}`, object: name };
  };

/** Of as many as there were. */
export const noteMany =
  <Input, Answer>(action: string, named: (input: Input) => readonly string[], count: (answer: Answer) => number) =>
  (input: Input, answer: Answer): AuditNote | null =>
    count(answer) === 0 ? null : { what: action, object: named(input)[0] ?? null, count: count(answer) };

/** Of the account itself. */
export const noteAccount = (action: string) => (): AuditNote => ({ what: action, object: null });

/** Of an account that is changed: by whoever runs the server, or by its own holder. */
export const noteAccountChange = (change: AccountChange): AuditNote => {
  const [only, ...others] = Object.keys(change);
  if (only === "state" && others.length === 0)
    return { what: change.state === "passive" ? "account.disable" : "account.enable", object: null };
  const limits = Object.keys(change.limits ?? {}).map((name) => `limits.${name}`);
  return { what: "account.change", object: null, fields: listFields(change).flatMap((name) => (name === "limits" ? limits : name)) };
};

/** What was given, by the words of the rows: a secret is named, and never shown. */
const listFields = (change: object): string[] => Object.keys(change).map((name) => (name === "secretHash" ? "secret" : name));

function isNoChange(answer: unknown): boolean {
  if (answer === null) return true;
  const found = typeof answer === "object" && "deleted" in answer ? answer.deleted : true;
  return found === false || found === 0;
}
