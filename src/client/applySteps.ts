import type { Api } from "./api.ts";
import type { ApiRequest } from "./connection.ts";
import type { Difference } from "./applySettings.ts";
import { hidden } from "./applySettings.ts";
import { CommandFailed, exitCodes } from "./terminal/commandFailed.ts";
import type { Fields } from "./terminal/fields.ts";
import { toSafeLine } from "./terminal/safeText.ts";

/** One request that changes something: what it does, and what it sends. `resource` is `queues.orders`. */
export type ApplyStep = {
  resource: string;
  action: "create" | "change" | "pause" | "resume";
  differences: readonly Difference[];
  run(): Promise<unknown>;
};

/** Reads something by its path. Returns null if it does not exist. */
export async function readOrNull(api: Api, path: string, needs: ApiRequest["needs"]): Promise<Fields | null> {
  try {
    return await api.read({ path, needs });
  } catch (error) {
    if (error instanceof CommandFailed && error.exitCode === exitCodes.notFound) return null;
    throw error;
  }
}

/** Returns a request with a JSON body. */
export const jsonRequest = (
  method: "POST" | "PUT" | "PATCH" | "DELETE",
  path: string,
  body: unknown,
): Omit<ApiRequest, "needs"> => ({
  method,
  path,
  headers: { "content-type": "application/json" },
  body: JSON.stringify(body),
});

/** Returns the differences between fields of the file and those that a server shows. */
export const compareFields = (given: Fields, shown: Fields): Difference[] =>
  Object.entries(given).flatMap(([field, value]) =>
    value === undefined || toText(value) === toText(shown[field])
      ? []
      : [{ field, before: toText(shown[field]), after: toText(value) }],
  );

const toText = (value: unknown): string | null =>
  value === undefined || value === null ? null : typeof value === "string" ? value : JSON.stringify(value);

/** Returns a difference whose values are not printed. */
export const hiddenDifference = (field: string, existed: boolean): Difference => ({
  field,
  before: existed ? hidden : null,
  after: hidden,
});

/** Returns the lines that describe a step. */
export const describeStep = ({ resource, action, differences }: ApplyStep): string[] => [
  `${action} ${toSafeLine(resource)}`,
  ...differences.map(({ field, before, after }) => {
    const change = before === null ? show(after) : `${show(before)} -> ${show(after)}`;
    return `  ${toSafeLine(field)}: ${change}`;
  }),
];

const maxShown = 200;

const show = (text: string | null): string => {
  const line = text === null ? "(none)" : text === "" ? '""' : toSafeLine(text);
  return line.length > maxShown ? `${line.slice(0, maxShown)}…` : line;
};
