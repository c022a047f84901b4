import type { Draft, Moment, Rows, TableName } from "../../../src/engine/core/decision/command.ts";
import type { CommandName, Commands, CommandInput } from "../../../src/engine/store/catalog/commands.ts";
import { commands } from "../../../src/engine/store/catalog/commands.ts";

/** How a mutant alters the rows of a table that are written. Undefined: the row is not written. */
type RowAlterations = {
  [T in TableName]?: (row: Rows[T], draft: Draft, moment: Moment) => Rows[T] | undefined;
};

/** How a mutant alters the draft of a decision. */
export type Alteration = {
  put?: RowAlterations;
  drop?: (table: TableName, draft: Draft, key: readonly (string | undefined)[]) => boolean;
} & Partial<
  Pick<
    Draft,
    | "abort"
    | "count"
    | "hasChanged"
    | "capacity"
    | "get"
    | "inspect"
    | "inspectWithoutBody"
    | "listRunRows"
    | "moveToKeptLog"
  >
>;

/** Returns the commands, with one decision whose draft is altered. */
export function alterDecision<N extends CommandName>(
  name: N,
  makeAlteration: (input: CommandInput<N>, draft: Draft, moment: Moment) => Alteration,
): Commands {
  const decision = commands[name] as { decide(input: unknown, draft: Draft, moment: Moment): unknown };
  const decide = (input: CommandInput<N>, draft: Draft, moment: Moment): unknown => {
    const { put = {}, drop, ...others } = makeAlteration(input, draft, moment);
    const own: Record<string, unknown> = {
      ...others,
      put: (table: TableName, row: never) => {
        const turn = put[table] as ((row: unknown, draft: Draft, moment: Moment) => never) | undefined;
        const turned = turn ? turn(row, draft, moment) : row;
        if (turned !== undefined) draft.put(table, turned);
      },
      drop: (table: TableName, ...key: never) => {
        if (drop?.(table, draft, key) !== false) draft.drop(table, ...(key as readonly [string]));
      },
    };
    const proxy = new Proxy(draft, {
      get: (target, member) => {
        const value: unknown = own[String(member)] ?? Reflect.get(target, member, target);
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
    return decision.decide(input, proxy, moment);
  };
  return { ...commands, [name]: { ...decision, decide } };
}

/** Returns the commands, with one decision whose input is altered. */
export function alterInput<N extends CommandName>(
  name: N,
  makeInput: (input: CommandInput<N>) => CommandInput<N>,
): Commands {
  const { hint, decide } = commands[name] as unknown as Record<
    string,
    ((input: unknown, ...rest: unknown[]) => unknown) | undefined
  >;
  const turned = (of: ((input: unknown, ...rest: unknown[]) => unknown) | undefined) =>
    of && ((input: CommandInput<N>, ...rest: unknown[]) => of(makeInput(input), ...rest));
  return { ...commands, [name]: { hint: turned(hint), decide: turned(decide) } };
}
