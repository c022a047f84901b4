/** Returns the rows of a list as JSON. */
export const toJsonFile = (rows: readonly unknown[]): string => `${JSON.stringify(rows, null, 2)}\n`;

/**
 * Returns the rows of a list as CSV (RFC 4180): a column for each member of any row. A value that is an object
 * or a list is JSON. Strangers choose many of the values, so a value that a program for tables would take for
 * a formula begins with an apostrophe.
 */
export function toCsvFile(rows: readonly unknown[]): string {
  const entries = rows.map((row) => new Map(Object.entries(row as object)));
  const names = [...new Set(entries.flatMap((entry) => [...entry.keys()]))];
  const lines = entries.map((entry) => names.map((name) => toCell(entry.get(name))));
  return [names.map(toCell), ...lines].map((cells) => `${cells.join(",")}\r\n`).join("");
}

function toCell(value: unknown): string {
  if (value === undefined || value === null) return "";
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  const text = typeof value === "string" ? value : JSON.stringify(value);
  const safe = /^[\s\0]*[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) || safe !== text ? `"${safe.replaceAll('"', '""')}"` : safe;
}
