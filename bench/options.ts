import { parseArgs } from "node:util";

/** The options of a bench: their defaults, which also give their types, and what they mean. */
export type OptionTable = Record<string, { default: number | boolean | string; help: string }>;

/** The values of a table, by name. */
export type Given<T extends OptionTable> = { [N in keyof T]: Widened<T[N]["default"]> };
type Widened<V> = V extends number ? number : V extends boolean ? boolean : string;

/** Options that every bench has. */
export const common = {
  "data-root": { default: "data", help: "folder on a real disk for the servers' data (removed afterwards)" },
  pin: { default: false, help: "pin the server to core 0 and everything else to core 1 (needs taskset)" },
  connections: { default: 64, help: "connections of the load, and of the pass-through to the sink" },
  json: { default: false, help: "print the result as JSON, too" },
} as const satisfies OptionTable;

/** Throws an error that says what to do when an option is unknown or no number. */
export function readOptions<T extends OptionTable>(table: T, args: readonly string[]): Given<T> {
  const rows = Object.entries(table);
  const options = Object.fromEntries(
    rows.map(([name, row]) => [name, { type: typeof row.default === "boolean" ? ("boolean" as const) : ("string" as const) }]),
  );
  const { values } = parseArgs({ args: [...args], options, strict: true });
  return Object.fromEntries(rows.map(([name, row]) => [name, read(name, row.default, values[name])])) as Given<T>;
}

function read(name: string, fallback: number | boolean | string, value: unknown): number | boolean | string {
  if (typeof value !== "string") return value === true || fallback;
  if (typeof fallback === "string") return value;
  const number = Number(value);
  if (!Number.isFinite(number) || number < 0 || value === "") throw new Error(`--${name} needs a number of 0 or more, and got "${value}".`);
  return number;
}

/** One line for each option. */
export function describeOptions(table: OptionTable): string {
  const lines = Object.entries(table).map(([name, row]) => `    --${name.padEnd(18)} ${row.help} [${String(row.default)}]`);
  return lines.join("\n");
}
