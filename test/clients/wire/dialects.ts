import type { Dialect } from "./exchange.ts";

/**
 * The headers of httpx, which the Python client uses. Names keep their case, and a POST without a body has a
 * length of 0.
 */
export const python: Dialect = (host, token, { method, headers, body }) => [
  ["Host", host],
  ["Accept", "*/*"],
  ["Accept-Encoding", "gzip, deflate"],
  ["Connection", "keep-alive"],
  ["User-Agent", "python-httpx/0.28.1"],
  ["Authorization", `Bearer ${token}`],
  ...headers,
  ...length(body ?? (["POST", "PUT", "PATCH"].includes(method) ? "" : undefined)),
];

/** The headers of Go's net/http: canonical names in alphabetical order. */
export const go: Dialect = (host, token, { method, headers, body }) => {
  const all = [
    ["Authorization", `Bearer ${token}`] as const,
    ...headers.map(([name, value]) => [canonical(name), value] as const),
  ];
  return [
    ["Host", host],
    ["User-Agent", "Go-http-client/1.1"],
    ...length(body ?? (method === "POST" || method === "PATCH" ? "" : undefined)),
    ...all.toSorted(([one], [other]) => (one < other ? -1 : Number(one > other))),
    ["Accept-Encoding", "gzip"],
  ];
};

const length = (body: string | undefined): [string, string][] =>
  body === undefined ? [] : [["Content-Length", String(Buffer.byteLength(body))]];

const canonical = (name: string): string =>
  name
    .split("-")
    .map((part) => part.slice(0, 1).toUpperCase() + part.slice(1).toLowerCase())
    .join("-");

/**
 * Returns the text of a value as Python's json module writes it: a space after every comma and colon, and
 * only ASCII.
 */
export function pythonJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(pythonJson).join(", ")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value).replace(/[^ -~]/g, escaped);
  const members = Object.entries(value).map(([name, one]) => `${pythonJson(name)}: ${pythonJson(one)}`);
  return `{${members.join(", ")}}`;
}

/**
 * Returns the text of a value as Go's encoding/json writes it: names in order, and `<`, `>` and `&` escaped.
 */
export const goJson = (value: unknown): string => JSON.stringify(sorted(value)).replace(/[<>&]/g, escaped);

const escaped = (sign: string): string => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`;

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(
    Object.entries(value)
      .toSorted(([one], [other]) => (one < other ? -1 : 1))
      .map(([name, one]) => [name, sorted(one)]),
  );
}
