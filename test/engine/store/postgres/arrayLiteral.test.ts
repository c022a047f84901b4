import { Client } from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { formatColumnArray } from "../../../../src/engine/store/postgres/arrayLiteral.ts";
import type { Value } from "../../../../src/engine/store/catalog/tables.ts";
import { freshDatabase } from "../../../postgres.ts";
import { createRandom } from "../createRandom.ts";

const literalOf = (values: readonly Value[]): string =>
  formatColumnArray(
    values.map((value) => ["", value]),
    1,
  );

test("values are formatted as a PostgreSQL array literal", () => {
  expect(literalOf([])).toBe("{}");
  expect(literalOf([1, -2.5, null, 1_795_365_204_368])).toBe("{1,-2.5,NULL,1795365204368}");
  expect(literalOf(["a b", "", "NULL", 'say "x"', "back\\slash"])).toBe(
    '{"a b","","NULL","say \\"x\\"","back\\\\slash"}',
  );
  expect(
    literalOf([new Uint8Array([0, 255]), new Uint8Array(0), new Uint8Array([9, 8, 7]).subarray(1, 2)]),
  ).toBe('{"\\\\x00ff","\\\\x","\\\\x08"}');
});

let client: Client;
beforeAll(async () => {
  client = new Client({ connectionString: await freshDatabase() });
  await client.connect();
});
afterAll(() => client.end());

const asked = async (type: string, values: readonly Value[]): Promise<unknown[]> =>
  (await client.query({ text: `select unnest($1::${type}[]) as one`, values: [literalOf(values)] })).rows.map(
    ({ one }) => one,
  );

test("PostgreSQL reads every text unchanged, with U+FFFD for each NUL and lone surrogate", async () => {
  const random = createRandom(1);
  const parts = [
    '"',
    "\\",
    "{",
    "}",
    ",",
    " ",
    "'",
    "\n",
    "\t",
    "\r",
    "\b",
    "\f",
    "\u001b",
    "\u007f",
    "\u2028",
    "NULL",
    "null",
    "ä",
    "€",
    "😀",
  ];
  const more = ["\\n", "\\u0041", '{"a":"b\\"c"}', "$1", "--", "\\x41", "\ufeff", "a"];
  const all = [...parts, ...more];
  const text = (): string =>
    Array.from({ length: Math.floor(random() * 6) }, () => all[Math.floor(random() * all.length)] ?? "").join(
      "",
    );
  const texts = Array.from({ length: 20_000 }, text);
  expect(await asked("text", texts)).toEqual(texts);
  expect(await asked("text", ["a\0b", "\0", "\ud800x", "x\udc00", '"\0\\'])).toEqual([
    "a\ufffdb",
    "\ufffd",
    "\ufffdx",
    "x\ufffd",
    '"\ufffd\\',
  ]);
});

test("bytes, numbers and null arrive unchanged", async () => {
  const bytes = Array.from({ length: 256 }, (_, byte) => byte);
  expect(await asked("bytea", [new Uint8Array(bytes), null, new Uint8Array(0)])).toEqual([
    Buffer.from(bytes),
    null,
    Buffer.alloc(0),
  ]);
  expect(await asked("integer", [1, null, -7])).toEqual([1, null, -7]);
  expect(await asked("bigint", [2 ** 53 - 1, null])).toEqual([String(2 ** 53 - 1), null]);
});
