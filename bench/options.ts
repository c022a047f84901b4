import { parseArgs } from "node:util";

/** The options of a bench, with default (which sets the type) and meaning. */
export type OptionTable = Record<string, { default: number | boolean | string; help: string }>;

/** The values of the options, by name. */
export type Given<T extends OptionTable> = { [N in keyof T]: Widened<T[N]["default"]> };
type Widened<V> = V extends number ? number : V extends boolean ? boolean : string;

/** Options of every bench. */
export const common = {
  "data-root": { default: "data", help: "folder on a real disk for the servers' data (removed afterwards)" },
  pin: { default: false, help: "pin the server to core 0 and everything else to core 1 (requires taskset)" },
  connections: { default: 64, help: "connections of the load, and of the pass-through to the sink" },
  json: { default: false, help: "print the result as JSON, too" },
} as const satisfies OptionTable;

/** Reads options. Throws an error that says what to do if an option is unknown or not a number. */
export function readOptions<T extends OptionTable>(table: T, args: readonly string[]): Given<T> {
  const rows = Object.entries(table);
  const options = Object.fromEntries(
    rows.map(([name, row]) => [
      name,
      { type: typeof row.default === "boolean" ? ("boolean" as const) : ("string" as const) },
    ]),
  );
  const { values } = parseArgs({ args: [...args], options, strict: true });
  return Object.fromEntries(
    rows.map(([name, row]) => [name, read(name, row.default, values[name])]),
  ) as Given<T>;
}

function read(name: string, fallback: number | boolean | string, value: unknown): number | boolean | string {
  if (typeof value !== "string") return value === true || fallback;
  if (typeof fallback === "string") return value;
  const number = Number(value);
  if (!Number.isFinite(number) || number < 0 || value === "")
    throw new Error(`--${name}: "${value}" is not a number of at least 0.`);
  return number;
}

/** Returns one line per option. */
export function describeOptions(table: OptionTable): string {
  const lines = Object.entries(table).map(
    ([name, row]) => `    --${name.padEnd(18)} ${row.help} [${String(row.default)}]`,
  );
  return lines.join("\n");
}
