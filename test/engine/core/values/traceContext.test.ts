import { expect, test } from "vitest";
import { parseTraceContext, toChildParent } from "../../../../src/engine/core/values/traceContext.ts";

const traceId = "4bf92f3577b34da6a3ce929d0e0e4736";
const spanId = "00f067aa0ba902b7";
const parent = `00-${traceId}-${spanId}-01`;

test("a valid context is kept, and a child has another span id", () => {
  expect(parseTraceContext([parent], [])).toEqual({ parent });
  expect(parseTraceContext([` ${parent} `], ["a=1, b@c=2", "d/e=x y".replace(" ", "_")])).toEqual({
    parent,
    state: "a=1,b@c=2,d/e=x_y",
  });
  expect(toChildParent({ parent }, "1234567890abcdef")).toBe(`00-${traceId}-1234567890abcdef-01`);
});

test("a later version is read like version 00", () => {
  expect(parseTraceContext([`cc-${traceId}-${spanId}-01-what-comes-later`], [])).toEqual({ parent });
});

test.each([
  ["missing", []],
  ["given twice", [parent, parent]],
  ["empty", [""]],
  ["too short", [parent.slice(0, -1)]],
  ["too long for version 00", [`${parent}-more`]],
  ["of the forbidden version", [`ff-${traceId}-${spanId}-01`]],
  ["with an empty trace id", [`00-${"0".repeat(32)}-${spanId}-01`]],
  ["with an empty span id", [`00-${traceId}-${"0".repeat(16)}-01`]],
  ["in capitals", [parent.toUpperCase()]],
  ["with a line break", [`${parent}\r\nX-Evil: 1`]],
  ["with other characters", [parent.replace("4", "g")]],
])("a traceparent that is %s is ignored", (_name, parents) => {
  expect(parseTraceContext(parents, ["a=1"])).toBeUndefined();
});

test.each([
  ["too long", [`a=${"x".repeat(256)},b=${"x".repeat(256)}`]],
  ["of too many members", [Array.from({ length: 33 }, (_, at) => `k${at}=1`).join(",")]],
  ["without a value", ["a"]],
  ["with a line break", ["a=1\r\nX-Evil: 1"]],
  ["with a key in capitals", ["A=1"]],
])("a tracestate that is %s is left out", (_name, states) => {
  expect(parseTraceContext([parent], states)).toEqual({ parent });
});
