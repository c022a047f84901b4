import type { Decision } from "../decision/command.ts";

/** Marks a command of the server itself: no caller waits for its answer. */
export const internal = <Input, Answer>(decision: Decision<Input, Answer>): Decision<Input, Answer> => ({
  ...decision,
  isInternal: true,
});

/** Marks a command that changes accounts or credentials, which nodes keep in memory. */
export const accountChange = <Input, Answer>(decision: Decision<Input, Answer>): Decision<Input, Answer> => ({
  ...decision,
  changesAccounts: true,
});
