import { compareText } from "./exchange.ts";

/**
 * The values that differ between two runs, besides ids and times. `places`: the name for each host with its
 * port.
 */
export type Volatile = { places: Readonly<Record<string, string>>; secrets: Iterable<string>; now: number };

/**
 * Returns a function that replaces ids, secrets, times and lengths of time in a string. It numbers ids in the
 * order in which they appear.
 */
export function createNormaliser({ places, secrets, now }: Volatile): (text: string) => string {
  const numbers = new Map<string, string>();
  const known = new Set([...secrets].filter((secret) => secret.length >= 8));
  const byLength = (one: string, other: string): number =>
    other.length - one.length || compareText(one, other);
  const longestFirst = [...known, ...Object.keys(places)].sort(byLength);
  const literal = longestFirst.map((text) => text.replace(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`));
  const pattern = new RegExp([...literal, ...shapes].join("|"), "g");
  const encoded = new RegExp(base64, "g");
  const numbered = (text: string): string => {
    const found = numbers.get(text) ?? `<id${numbers.size + 1}>`;
    numbers.set(text, found);
    return found;
  };
  const replaced = (text: string): string => {
    if (places[text] !== undefined) return places[text];
    if (known.has(text) || idShape.test(text)) return numbered(text);
    if (isoShape.test(text)) return Math.abs(Date.parse(text) - now) < nearby ? "<date>" : text;
    if (dayShape.test(text)) return Math.abs(Date.parse(text) - now) < nearby ? "<day>" : text;
    if (httpDateShape.test(text)) return "<date>";
    if (/^\d{13}$/.test(text)) return Math.abs(Number(text) - now) < nearby ? "<ms>" : text;
    return Math.abs(Number(text) * 1000 - now) < nearby ? "<s>" : text;
  };
  /** Base64 of readable text is replaced by that text, normalised. */
  const decoded = (text: string): string => {
    const plain = Buffer.from(text, "base64").toString();
    if (Buffer.from(plain).toString("base64") !== text || /[^\t\n\r\x20-\x7e]/.test(plain)) return text;
    if (plain.startsWith('{"UserID":')) return numbered(text);
    return `<base64 of ${JSON.stringify(normalise(plain)).slice(1, -1)}>`;
  };
  const normalise = (text: string): string => {
    const plain = text.replace(pattern, replaced).replace(encoded, decoded);
    return plain.replace(measured, "$1<number>");
  };
  return normalise;
}

const nearby = 500 * 86_400_000;
const id = String.raw`(?:msg|wfr|run|scd|sig|jwt|evt|src|tok|aud|ntf|nod|acc)_[1-9A-HJ-NP-Za-km-z]{20,}`;
const uuid = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
const webhookKey = "whsec_[A-Za-z0-9+/]{8,}=*";
const position = String.raw`\b\d{13}-\d{1,12}\b`;
const iso = String.raw`\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z| ?[+-]\d\d:?\d\d(?: UTC)?)?`;
const day = String.raw`\b\d{4}-\d\d-\d\d\b`;
const httpDate = String.raw`\b[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT\b`;
const base64 = String.raw`(?<![A-Za-z0-9+/_.-])[A-Za-z0-9+/]{8,}={0,2}(?![A-Za-z0-9+/=_-])`;
const unixTime = String.raw`\b\d{13}\b|\b\d{10}\b`;
const shapes = [id, uuid, webhookKey, position, iso, day, httpDate, unixTime];

const whole = (shape: string): RegExp => new RegExp(`^(?:${shape})$`);
const idShape = whole([id, uuid, webhookKey, position].join("|"));
const isoShape = whole(iso);
const dayShape = whole(day);
const httpDateShape = whole(httpDate);

/** Members whose values are measured: lengths of time, and sizes of rows that contain those. */
const measured = new RegExp(
  String.raw`(\\*"(?:took|latency|duration|connect|lookup|tcp|tls|firstByte|uptime|age` +
    String.raw`|storage_bytes|storedBytes)\\*":)\d+(?:\.\d+)?`,
  "g",
);
