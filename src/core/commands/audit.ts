import type { AccountChange } from "./account.ts";
import type { Actor, Note } from "../model/auditEntry.ts";
import type { Decision } from "../decision/command.ts";
import { parseGate } from "../admission/gate.ts";
import type { AccountId } from "../model/message.ts";

/** What a command is given besides, when somebody asks for it whose doing is to be kept. */
export type By = { by?: Actor };

/**
 * The same decision, which also keeps who asked for it: in the same draft, so that there is an entry if, and only if, the
 * change has happened. `noteOf` says what was done; null when nothing was, as where what is to be paused is paused already. Without
 * `by` nothing is kept.
 */
export function audited<Input extends object, Answer>(
  decision: Decision<Input, Answer>,
  noteOf: (input: Input, answer: Answer) => Note | null,
): Decision<Input & By, Answer> {
  return {
    ...decision,
    decide: ({ by, ...rest }, draft, moment) => {
      // What is left is the input without `by`, which no decision knows of.
      const input = rest as unknown as Input;
      const answer = decision.decide(input, draft, moment);
      const note = by === undefined || !draft.hasChanged() ? null : noteOf(input, answer);
      if (by !== undefined && note !== null)
        draft.put("audit", { account: accountOf(input), id: moment.newId("aud"), time: moment.now, by, ...note });
      return answer;
    },
  };
}

/** An account is named by its id where it is what the command is about. */
const accountOf = (input: { account?: AccountId; id?: AccountId }): AccountId => input.account ?? input.id ?? "";

type Named = { id: string } | { name: string } | { key: string };

const nameOf = (input: Named): string => ("key" in input ? input.key : "name" in input ? input.name : input.id);

/** Of what is named by its id, name or key. An answer that says that there was none is no change. */
export const noteOf =
  (what: string) =>
  (input: Named, answer: unknown): Note | null =>
    isNothing(answer) ? null : { what, object: nameOf(input) };

/** The same, and what was given anew. */
export const noteOfChange =
  (what: string) =>
  (input: Named & { change: object }, answer: unknown): Note | null =>
    isNothing(answer) ? null : { what, object: nameOf(input), fields: fieldsOf(input.change) };

/** Of a queue or a key, as its id says. */
export const noteOfFlow =
  (verb: string) =>
  ({ id }: { id: string }, answer: unknown): Note | null => {
    const { kind, name } = parseGate(id);
    return isNothing(answer) ? null : { what: `${kind === "key" ? "flowControl" : "queue"}.${verb}`, object: name };
  };

/** Of as many as there were. */
export const noteOfMany =
  <Input, Answer>(what: string, named: (input: Input) => readonly string[], count: (answer: Answer) => number) =>
  (input: Input, answer: Answer): Note | null =>
    count(answer) === 0 ? null : { what, object: named(input)[0] ?? null, count: count(answer) };

/** Of the account itself. */
export const noteOfAccount = (what: string) => (): Note => ({ what, object: null });

/** Of an account that is changed: by whoever runs the server, or by its own holder. */
export const noteOfAccountChange = (change: AccountChange): Note => {
  const [only, ...others] = Object.keys(change);
  if (only === "state" && others.length === 0)
    return { what: change.state === "passive" ? "account.disable" : "account.enable", object: null };
  const limits = Object.keys(change.limits ?? {}).map((name) => `limits.${name}`);
  return { what: "account.change", object: null, fields: fieldsOf(change).flatMap((name) => (name === "limits" ? limits : name)) };
};

/** What was given, by the words of the rows: a secret is named, and never shown. */
const fieldsOf = (change: object): string[] => Object.keys(change).map((name) => (name === "secretHash" ? "secret" : name));

function isNothing(answer: unknown): boolean {
  if (answer === null) return true;
  const found = typeof answer === "object" && "deleted" in answer ? answer.deleted : true;
  return found === false || found === 0;
}
