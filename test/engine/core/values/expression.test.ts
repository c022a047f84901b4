import { fc } from "../../../seeds.ts";
import { describe, expect, test } from "vitest";
import { day } from "../../../../src/engine/core/values/time.ts";
import { Refusal } from "../../../../src/engine/core/values/errors.ts";
import {
  evaluate,
  parseExpression,
  evaluateRetryDelay,
} from "../../../../src/engine/core/values/expression.ts";

const valueOf = (text: string, retried = 0): number => evaluate(parseExpression(text), retried);

describe("evaluate", () => {
  test.each([
    ["1000", 5, 1000],
    ["1000 * (1 + retried)", 2, 3000],
    ["pow(2, retried) * 1000", 3, 8000],
    ["max(1000, pow(2, retried) * 100)", 0, 1000],
    ["max(1000, pow(2, retried) * 100)", 5, 3200],
    ["2000 * retried", 0, 0],
    ["pow(retried, 2) * 1000", 3, 9000],
    ["2 + 3 * 4", 0, 14],
    ["(2 + 3) * 4", 0, 20],
    ["2 * 3 + 4", 0, 10],
    ["10 - 4 - 3", 0, 3],
    ["100 / 10 / 5", 0, 2],
    ["100 - 10 / 5 * 2 - 1", 0, 95],
    ["-2 * -3", 0, 6],
    ["5 - -2", 0, 7],
    ["--5", 0, 5],
    ["-(1 + 2)", 0, -3],
    ["-retried + 1", 4, -3],
    ["0.5 + .25", 0, 0.75],
    ["exp(0) + sqrt(16)", 0, 5],
    ["abs(-7)", 0, 7],
    ["floor(1.7) * 100 + ceil(1.2) * 10 + round(1.5)", 0, 122],
    ["min(3, 2)", 0, 2],
    ["max(min(1, 2), max(3, pow(2, 2)))", 0, 4],
    ["  1\t+  1  ", 0, 2],
    ["1+1", 0, 2],
    ["1 / 0", 0, Infinity],
    ["0 / 0", 0, NaN],
    ["sqrt(-1)", 0, NaN],
  ])("%s with retried = %d is %d", (text, retried, value) => {
    expect(valueOf(text, retried)).toBe(value);
  });

  type Sample = { text: string; value: (retried: number) => number };

  const binary =
    (sign: string, of: (left: number, right: number) => number) => (left: Sample, right: Sample) => ({
      text: `(${left.text}) ${sign} (${right.text})`,
      value: (retried: number) => of(left.value(retried), right.value(retried)),
    });
  const call =
    (name: string, of: (left: number, right: number) => number) => (left: Sample, right: Sample) => ({
      text: `${name}(${left.text}, ${right.text})`,
      value: (retried: number) => of(left.value(retried), right.value(retried)),
    });
  const unary = (before: string, after: string, of: (value: number) => number) => (inner: Sample) => ({
    text: `${before}${inner.text}${after}`,
    value: (retried: number) => of(inner.value(retried)),
  });
  const twos = [
    binary("+", (left, right) => left + right),
    binary("-", (left, right) => left - right),
    binary("*", (left, right) => left * right),
    binary("/", (left, right) => left / right),
    call("pow", Math.pow),
    call("min", Math.min),
    call("max", Math.max),
  ];
  const ones = [
    unary("-(", ")", (value) => -value),
    unary("exp(", ")", Math.exp),
    unary("sqrt(", ")", Math.sqrt),
    unary("abs(", ")", Math.abs),
    unary("floor(", ")", Math.floor),
    unary("ceil(", ")", Math.ceil),
    unary("round(", ")", Math.round),
  ];

  test("agrees with the same operations done one by one", () => {
    const { sample } = fc.letrec<{ sample: Sample }>((tie) => ({
      sample: fc.oneof(
        { maxDepth: 4 },
        fc.constant({ text: "retried", value: (retried: number) => retried }),
        fc.nat(100_000).map((count) => ({ text: String(count / 100), value: () => count / 100 })),
        fc.tuple(fc.constantFrom(...ones), tie("sample")).map(([make, inner]) => make(inner)),
        fc
          .tuple(fc.constantFrom(...twos), tie("sample"), tie("sample"))
          .map(([make, left, right]) => make(left, right)),
      ),
    }));
    fc.assert(
      fc.property(sample, fc.nat(20), ({ text, value }, retried) => {
        fc.pre(text.length <= 256);
        expect(valueOf(text, retried)).toBe(value(retried));
      }),
    );
  });

  test("binds as in arithmetic without parentheses: products first, then sums from the left", () => {
    const number = fc.integer({ min: -99, max: 99 }).filter((value) => value !== 0);
    const factors = fc.array(fc.tuple(fc.constantFrom("*", "/"), number), { maxLength: 4 });
    const products = fc.array(fc.tuple(fc.constantFrom("+", "-"), number, factors), { maxLength: 5 });
    fc.assert(
      fc.property(number, products, (first, rest) => {
        const text = rest.flatMap(([sign, head, tail]) => [sign, head, ...tail.flat()]).join(" ");
        const sum = rest.reduce((before, [sign, head, tail]) => {
          const product = tail.reduce(
            (left, [factorSign, right]) => (factorSign === "*" ? left * right : left / right),
            head,
          );
          return sign === "+" ? before + product : before - product;
        }, first);
        expect(valueOf(`${first} ${text}`)).toBe(sum);
      }),
    );
  });
});

describe("parseExpression refuses", () => {
  const names = "pow, exp, sqrt, abs, floor, ceil, round, min, max";
  const operand = 'a number, retried, a function, "-" or "("';

  test.each([
    ["", `unexpected end at 1; expected ${operand}`],
    ["   ", `unexpected end at 4; expected ${operand}`],
    ["1 + x", `unexpected "x" at 5; expected retried or one of ${names}`],
    ["1 + ", `unexpected end at 5; expected ${operand}`],
    ["1 2", 'unexpected "2" at 3; expected an operator or the end'],
    ["* 2", `unexpected "*" at 1; expected ${operand}`],
    ["+2", `unexpected "+" at 1; expected ${operand}`],
    ["()", `unexpected ")" at 2; expected ${operand}`],
    ["(1", 'unexpected end at 3; expected an operator or ")"'],
    ["1)", 'unexpected ")" at 2; expected an operator or the end'],
    ["1e3", 'unexpected "e3" at 2; expected an operator or the end'],
    ["1.2.3", 'unexpected ".3" at 4; expected an operator or the end'],
    ["1.", 'unexpected "." at 2; expected an operator or the end'],
    ["2 ** 3", `unexpected "*" at 4; expected ${operand}`],
    ["2 % 3", 'unexpected "%" at 3; expected an operator or the end'],
    ["1,000", 'unexpected "," at 2; expected an operator or the end'],
    ["retried(1)", 'unexpected "(" at 8; expected an operator or the end'],
    ["Retried", `unexpected "Retried" at 1; expected retried or one of ${names}`],
    ["pow", 'unexpected end at 4; expected "(" (pow takes 2 arguments)'],
    ["pow + 1", 'unexpected "+" at 5; expected "(" (pow takes 2 arguments)'],
    ["pow(2)", 'unexpected ")" at 6; expected an operator or "," (pow takes 2 arguments)'],
    ["max(1, 2, 3)", 'unexpected "," at 9; expected an operator or ")" (max takes 2 arguments)'],
    ["exp(1, 2)", 'unexpected "," at 6; expected an operator or ")" (exp takes 1 argument)'],
    ["exp()", `unexpected ")" at 5; expected ${operand}`],
    ["constructor", `unexpected "constructor" at 1; expected retried or one of ${names}`],
    ["__proto__(1)", `unexpected "__proto__" at 1; expected retried or one of ${names}`],
    ["toString(1)", `unexpected "toString" at 1; expected retried or one of ${names}`],
    ["retried.constructor", 'unexpected "." at 8; expected an operator or the end'],
    ["1 😀", 'unexpected "😀" at 3; expected an operator or the end'],
    ['1 "', 'unexpected "\\"" at 3; expected an operator or the end'],
    ["1+".repeat(128) + "1", "has 257 characters; the limit is 256"],
  ])("%j", (text, problem) => {
    expect(() => parseExpression(text)).toThrow(new Refusal("invalid", `retry delay: ${problem}`));
  });

  test.each([
    ["parentheses", (levels: number) => "(".repeat(levels) + "1" + ")".repeat(levels)],
    ["calls", (levels: number) => "abs(".repeat(levels) + "1" + ")".repeat(levels)],
    ["minus signs", (levels: number) => "-".repeat(levels) + "1"],
  ])("more than 32 nested %s", (_, nested) => {
    expect(Math.abs(valueOf(nested(32)))).toBe(1);
    expect(() => parseExpression(nested(33))).toThrow(
      /^retry delay: exceeds the limit of 32 nested levels at \d+$/,
    );
  });

  test("a chain of operators does not count as nesting, so all 256 characters can be used", () => {
    expect(valueOf("1+".repeat(127) + "10")).toBe(137);
  });

  test("any other text, and throws nothing but a Refusal", () => {
    const pieces = fc.constantFrom(
      "1",
      ".5",
      "retried",
      "pow",
      "abs",
      "(",
      ")",
      ",",
      "+",
      "-",
      "*",
      "/",
      " ",
      "valueOf",
      "\u0000",
      "\ud800",
    );
    const text = fc.oneof(
      fc.string({ unit: "binary" }),
      fc.array(pieces, { maxLength: 40 }).map((parts) => parts.join("")),
    );
    fc.assert(
      fc.property(text, fc.nat(), (each, retried) => {
        const delay = orRefusal(() => evaluateRetryDelay(each, retried));
        expect(delay instanceof Refusal || (Number.isInteger(delay) && delay >= 0 && delay <= day)).toBe(
          true,
        );
      }),
    );
    expect(orRefusal(() => parseExpression("(".repeat(1_000_000)))).toBeInstanceOf(Refusal);
  });

  function orRefusal<T>(ask: () => T): T | Refusal {
    try {
      return ask();
    } catch (error) {
      if (error instanceof Refusal) return error;
      throw error;
    }
  }
});

describe("evaluateRetryDelay", () => {
  test.each([
    ["1000", 0, 1000],
    ["pow(2, retried) * 1000", 2, 4000],
    ["1.5", 0, 2],
    ["1.4", 0, 1],
    ["0 - 5", 0, 0],
    ["-0.2", 0, 0],
    ["0 / 0", 0, 0],
    ["-1 / 0", 0, 0],
    ["1 / 0", 0, 86_400_000],
    ["86400000", 0, 86_400_000],
    ["86400001", 0, 86_400_000],
    ["exp(retried)", 1000, 86_400_000],
    ["9".repeat(256), 0, 86_400_000],
  ])("%s with retried = %d is %d ms", (text, retried, delay) => {
    expect(evaluateRetryDelay(text, retried)).toBe(delay);
  });

  test("gives the same result regardless of other texts in between", () => {
    const delays = Array.from({ length: 600 }, (_, count) => evaluateRetryDelay(`${count} + retried`, 1));
    expect(delays).toEqual(Array.from({ length: 600 }, (_, count) => count + 1));
    expect(evaluateRetryDelay("0 + retried", 7)).toBe(7);
    expect(evaluateRetryDelay("599 + retried", 7)).toBe(606);
  });

  test("refuses a malformed text each time", () => {
    expect(() => evaluateRetryDelay("1 +", 0)).toThrow(Refusal);
    expect(() => evaluateRetryDelay("1 +", 0)).toThrow(Refusal);
  });
});
