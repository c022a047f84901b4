import { describe, expect, test } from "vitest";
import type { PatchOperation } from "../../../../src/engine/core/values/jsonPatch.ts";
import { patchJson } from "../../../../src/engine/core/values/jsonPatch.ts";

describe("a JSON patch", () => {
  test.each<[string, PatchOperation[], string]>([
    ['{"a":1}', [], '{"a":1}'],
    ['{"a":1}', [{ op: "replace", path: "/a", value: 2 }], '{"a":2}'],
    ['{"a":1}', [{ op: "add", path: "/b", value: { c: [] } }], '{"a":1,"b":{"c":[]}}'],
    ['{"a":1,"b":2}', [{ op: "remove", path: "/a" }], '{"b":2}'],
    ['{"a":[1,3]}', [{ op: "add", path: "/a/1", value: 2 }], '{"a":[1,2,3]}'],
    ['{"a":[1]}', [{ op: "add", path: "/a/-", value: 2 }], '{"a":[1,2]}'],
    ['{"a":[1,2]}', [{ op: "remove", path: "/a/0" }], '{"a":[2]}'],
    ['[{"b":1}]', [{ op: "replace", path: "/0/b", value: null }], '[{"b":null}]'],
    ['{"a/b":1,"c~d":2,"":3}', [{ op: "remove", path: "/a~1b" }], '{"c~d":2,"":3}'],
    ['{"a/b":1,"c~d":2,"":3}', [{ op: "remove", path: "/c~0d" }], '{"a/b":1,"":3}'],
    ['{"":3}', [{ op: "replace", path: "/", value: 4 }], '{"":4}'],
    ["1", [{ op: "replace", path: "", value: { a: 1 } }], '{"a":1}'],
    ['{"a":{"b":1,"c":2}}', [{ op: "test", path: "/a", value: { c: 2, b: 1 } }], '{"a":{"b":1,"c":2}}'],
    ["{}", [{ op: "add", path: "/__proto__", value: { x: 1 } }], '{"__proto__":{"x":1}}'],
  ])("changes %s by %j to %s", (text, operations, expected) => {
    expect(patchJson(text, operations)).toBe(expected);
  });

  test.each<[string, PatchOperation[], string]>([
    ["no JSON", [], "jsonPatch: the body is not JSON"],
    ['{"a":1}', [{ op: "replace", path: "/b", value: 2 }], 'jsonPatch: the body has nothing at "/b"'],
    ['{"a":1}', [{ op: "remove", path: "/toString" }], 'jsonPatch: the body has nothing at "/toString"'],
    ['{"a":1}', [{ op: "add", path: "/a/b", value: 2 }], 'jsonPatch: the body has nothing at "/a/b"'],
    [
      "{}",
      [{ op: "add", path: "/__proto__/x", value: 1 }],
      'jsonPatch: the body has nothing at "/__proto__/x"',
    ],
    ['{"a":[1]}', [{ op: "add", path: "/a/2", value: 2 }], 'jsonPatch: the body has nothing at "/a/2"'],
    ['{"a":[1]}', [{ op: "remove", path: "/a/01" }], 'jsonPatch: the body has nothing at "/a/01"'],
    ['{"a":[1]}', [{ op: "remove", path: "/a/-" }], 'jsonPatch: the body has nothing at "/a/-"'],
    ['{"a":1}', [{ op: "remove", path: "a" }], 'jsonPatch: the body has nothing at "a"'],
    ['{"a":1}', [{ op: "remove", path: "" }], 'jsonPatch: the body has nothing at ""'],
    ['{"a":1}', [{ op: "test", path: "/a", value: "1" }], 'jsonPatch: the test of "/a" failed'],
  ])("does not fit %s: %j", (text, operations, error) => {
    expect(() => patchJson(text, operations)).toThrow(error);
    expect(({} as { x?: number }).x).toBeUndefined();
  });

  test("changes no operation, so a patch is the same for each of many bodies", () => {
    const operations: PatchOperation[] = [
      { op: "add", path: "/tags", value: [] },
      { op: "add", path: "/tags/-", value: { by: "us" } },
      { op: "add", path: "/tags/0/again", value: true },
    ];
    const before = structuredClone(operations);
    for (let body = 0; body < 3; body++)
      expect(patchJson("{}", operations)).toBe('{"tags":[{"by":"us","again":true}]}');
    expect(operations).toEqual(before);
  });

  test.each(["12345678901234567890", "1e400", "0.1234567890123456789", "1".repeat(1_000_000)])(
    "does not fit a body with a number that it would change (%#)",
    (number) => {
      const text = `{"id":${number},"a":1}`;
      expect(() => patchJson(text, [{ op: "remove", path: "/a" }])).toThrow(
        `jsonPatch: the body has the number ${number.slice(0, 40)}, which would lose digits`,
      );
    },
  );

  test("fits numbers in other notations, and digits in strings", () => {
    const text = String.raw`{"a":1,"b":[-0,1.50,1E3,9007199254740991,0.30000000000000004,5e-324,100000e19],
      "c":"12345678901234567890","d\\\"12345678901234567890":"\\"}`;
    expect(JSON.parse(patchJson(text, [{ op: "remove", path: "/a" }]))).toEqual({
      b: [0, 1.5, 1000, 9007199254740991, 0.30000000000000004, 5e-324, 1e24],
      c: "12345678901234567890",
      'd\\"12345678901234567890': "\\",
    });
  });

  test("does not fit a body that is nested too deeply", () => {
    const text = "[".repeat(500_000) + "]".repeat(500_000);
    expect(() => patchJson(text, [{ op: "add", path: "/-", value: 1 }])).toThrow(
      "jsonPatch: the body is nested too deeply",
    );
    expect(() => patchJson(text, [{ op: "test", path: "", value: 1 }])).toThrow(
      "jsonPatch: the body is nested too deeply",
    );
  });
});
