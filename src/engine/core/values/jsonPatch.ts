import { Refusal } from "./errors.ts";

/**
 * An operation of a JSON patch (RFC 6902). `copy` and `move` are left out: a few copies of a whole could fill
 * the memory.
 */
export type PatchOperation =
  | { op: "add" | "replace" | "test"; path: string; value: unknown }
  | { op: "remove"; path: string };

/** The maximum number of operations of a patch. */
export const maxPatchOperations = 100;

type Container = Record<string, unknown> | unknown[];

/**
 * Applies a patch to a JSON text and returns the changed text. The operations are not changed. Throws
 * `Refusal` if the text is not JSON, or if an operation does not fit it; `test` fits if the value is equal.
 * Also throws it for a body that reading and writing would change elsewhere.
 */
export function patchJson(text: string, operations: readonly PatchOperation[]): string {
  let root: unknown;
  try {
    root = JSON.parse(text);
  } catch {
    throw new Refusal("invalid", "jsonPatch: the body is not JSON");
  }
  assertExactNumbers(text);
  try {
    // An operation may change a value that an earlier one has added, and a patch is applied to many bodies.
    for (const operation of operations) root = applyOperation(root, structuredClone(operation));
    return JSON.stringify(root);
  } catch (error) {
    // The writer of JSON is recursive, and its reader is not.
    if (error instanceof RangeError) throw new Refusal("invalid", "jsonPatch: the body is nested too deeply");
    throw error;
  }
}

function applyOperation(root: unknown, operation: PatchOperation): unknown {
  const keys = readPointer(operation.path);
  const last = keys.pop();
  if (last === undefined) return changeRoot(root, operation);
  let parent = root;
  for (const key of keys) parent = readMember(parent, key, operation.path);
  if (typeof parent !== "object" || parent === null) throw misfit(operation.path);
  changeMember(parent as Container, last, operation);
  return root;
}

function changeRoot(root: unknown, operation: PatchOperation): unknown {
  if (operation.op === "remove") throw misfit(operation.path);
  if (operation.op === "test") assertEqual(root, operation);
  return operation.op === "test" ? root : operation.value;
}

function changeMember(parent: Container, key: string, operation: PatchOperation): void {
  const { op, path } = operation;
  if (op === "add") return addMember(parent, key, operation);
  const known = readMember(parent, key, path);
  if (op === "test") return assertEqual(known, operation);
  if (op === "replace") return setMember(parent, key, operation.value);
  if (Array.isArray(parent)) parent.splice(Number(key), 1);
  else delete parent[key];
}

function addMember(parent: Container, key: string, { path, value }: { path: string; value: unknown }): void {
  if (!Array.isArray(parent)) return setMember(parent, key, value);
  const at = key === "-" ? parent.length : readIndex(key);
  if (at === null || at > parent.length) throw misfit(path);
  parent.splice(at, 0, value);
}

/** Sets a member. A member that is called `__proto__` is a member like any other. */
const setMember = (parent: Container, key: string, value: unknown): void =>
  void Object.defineProperty(parent, key, { value, writable: true, enumerable: true, configurable: true });

function readMember(parent: unknown, key: string, path: string): unknown {
  if (Array.isArray(parent)) {
    const at = readIndex(key);
    if (at === null || at >= parent.length) throw misfit(path);
    return parent[at];
  }
  if (typeof parent !== "object" || parent === null || !Object.hasOwn(parent, key)) throw misfit(path);
  return (parent as Record<string, unknown>)[key];
}

const readIndex = (key: string): number | null => (/^(?:0|[1-9]\d{0,8})$/.test(key) ? Number(key) : null);

/** Returns the keys of a JSON pointer (RFC 6901). */
function readPointer(path: string): string[] {
  if (path === "") return [];
  if (!path.startsWith("/")) throw misfit(path);
  return path
    .slice(1)
    .split("/")
    .map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
}

function assertEqual(known: unknown, { path, value }: { path: string; value?: unknown }): void {
  if (sortKeys(known) !== sortKeys(value))
    throw new Refusal("invalid", `jsonPatch: the test of ${show(path)} failed`);
}

/** Returns JSON in which the members of each object are in order. */
const sortKeys = (value: unknown): string =>
  JSON.stringify(value, (_key, one: unknown) =>
    typeof one === "object" && one !== null && !Array.isArray(one)
      ? Object.fromEntries(Object.entries(one).sort(([a], [b]) => (a < b ? -1 : 1)))
      : one,
  );

const misfit = (path: string): Refusal =>
  new Refusal("invalid", `jsonPatch: the body has nothing at ${show(path)}`);

const show = (path: string): string => JSON.stringify(path.slice(0, 200));

/** The maximum length of a number that fits, in characters. */
const maxNumberLength = 40;

/** Throws `Refusal` if a number of a JSON text would be written with another value. */
function assertExactNumbers(text: string): void {
  const token = /["\\]|-?\d[\d.eE+-]*/g;
  let isString = false;
  for (let found = token.exec(text); found; found = token.exec(text)) {
    const [part] = found;
    if (part === '"') isString = !isString;
    else if (part === "\\") token.lastIndex++;
    else if (!isString && !isExact(part))
      throw new Refusal(
        "invalid",
        `jsonPatch: the body has the number ${part.slice(0, maxNumberLength)}, which would lose digits`,
      );
  }
}

/** Reports whether a number keeps its value when it is read and written. */
function isExact(number: string): boolean {
  if (/^-?[\d.]{1,15}$/.test(number)) return true;
  if (number.length > maxNumberLength) return false;
  const written = String(Number(number));
  return written === number || toDecimal(written) === toDecimal(number);
}

/** Returns the digits of a number and its exponent, so that equal numbers have equal texts. */
function toDecimal(number: string): string {
  const [, sign, whole = "", part = "", exponent = "0"] =
    /^(-?)(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?$/i.exec(number) ?? [];
  const all = `${whole}${part}`.replace(/^0+/, "");
  const digits = all.replace(/0+$/, "");
  return digits === ""
    ? "0"
    : `${sign}${digits}e${Number(exponent) - part.length + all.length - digits.length}`;
}
