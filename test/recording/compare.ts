import type { Header } from "./exchange.ts";

type Common = { label: string; method: string; path: string; headers: readonly Header[]; body: string };

/** One line of a recording. `label` is unique within the file. */
export type Line = (Common & { kind: "request"; status: number }) | (Common & { kind: "delivery" });

/** Returns a string for each field that differs between two recordings. Texts of errors do not count. */
export function differences(before: string, after: string): string[] {
  const old = readLines(before);
  const young = readLines(after);
  const labels = [...new Set([...old.keys(), ...young.keys()])];
  return labels.flatMap((label) => {
    const one = old.get(label);
    const other = young.get(label);
    if (!one || !other) return [`${label}: only in the ${one ? "first" : "second"} recording`];
    const fields = Object.keys(one).filter((field) => one[field] !== other[field]);
    return fields.map((field) => {
      const texts = one[field] ?? "";
      const otherTexts = other[field] ?? "";
      const at = firstDifference(texts, otherTexts);
      return `${label}: ${field}\n  - ${excerpt(texts, at)}\n  + ${excerpt(otherTexts, at)}`;
    });
  });
}

function firstDifference(one: string, other: string): number {
  let at = 0;
  while (at < one.length && one[at] === other[at]) at++;
  return at;
}

/** The part of a long text around a place. */
const excerpt = (text: string, at: number): string =>
  [
    at > around ? "…" : "",
    text.slice(Math.max(0, at - around), at + around),
    text.length > at + around ? "…" : "",
  ].join("");

const around = 160;

const formatHeaders = (headers: readonly Header[]): string =>
  headers.map((pair) => pair.join(": ")).join("\n    ");

type Fields = Record<string, string>;

/**
 * Reads a recording and masks texts of errors. Ids are numbered again, as one may have been in such a string
 * only.
 */
function readLines(recording: string): Map<string, Fields> {
  const numbers = new Map<string, string>();
  const renumbered = (text: string): string =>
    text.replace(/<id\d+>/g, (id) => {
      const found = numbers.get(id) ?? `<id${numbers.size + 1}>`;
      numbers.set(id, found);
      return found;
    });
  const lines = recording.split("\n").filter((line) => line !== "");
  return new Map(
    lines.map((line) => {
      const parsed = JSON.parse(line) as Line;
      const fields = Object.entries(parsed).map(([name, value]) => {
        const text = name === "headers" ? formatHeaders(value as Header[]) : String(value);
        return [name, renumbered(maskErrors(text))] as const;
      });
      return [parsed.label, Object.fromEntries(fields)];
    }),
  );
}

/** Replaces the texts of errors in JSON, also where that JSON is within a string of another. */
export function maskErrors(text: string): string {
  return text.replace(/(\\*")(error|message|detail)\1: ?\1[\s\S]*?(?<!\\)\1/g, "$1$2$1:$1<text>$1");
}
