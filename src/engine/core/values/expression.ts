import { day } from "./time.ts";
import { Refusal } from "./errors.ts";
import type { Millis } from "./basics.ts";
import { memoize } from "../caches/memoize.ts";

/** A parsed retry delay: a number, the variable `retried`, or a function of other expressions. */
export type Expression = number | "retried" | { apply: Apply; operands: readonly Expression[] };
type Apply = (...values: number[]) => number;

const maxExpressionLength = 256;
const maxDepth = 32;
const cacheSize = 256;

const functions: ReadonlyMap<string, { takes: number; apply: Apply }> = new Map([
  ["pow", { takes: 2, apply: Math.pow }],
  ["exp", { takes: 1, apply: Math.exp }],
  ["sqrt", { takes: 1, apply: Math.sqrt }],
  ["abs", { takes: 1, apply: Math.abs }],
  ["floor", { takes: 1, apply: Math.floor }],
  ["ceil", { takes: 1, apply: Math.ceil }],
  ["round", { takes: 1, apply: Math.round }],
  ["min", { takes: 2, apply: Math.min }],
  ["max", { takes: 2, apply: Math.max }],
]);

/** The operators. Stronger operators bind first. Operators of equal strength are evaluated from the left. */
const operators: ReadonlyMap<string, { strength: number; apply: (left: number, right: number) => number }> =
  new Map([
    ["+", { strength: 1, apply: (left, right) => left + right }],
    ["-", { strength: 1, apply: (left, right) => left - right }],
    ["*", { strength: 2, apply: (left, right) => left * right }],
    ["/", { strength: 2, apply: (left, right) => left / right }],
  ]);

const negate = (value: number): number => -value;

/**
 * Returns the delay in milliseconds before the next attempt, from 0 to 1 day. A negative result or NaN counts
 * as 0. Throws `Refusal` if the text is malformed.
 */
export function evaluateRetryDelay(text: string, retried: number): Millis {
  const delay = Math.round(evaluate(parseCached(text), retried));
  return Number.isNaN(delay) ? 0 : Math.min(Math.max(delay, 0), day);
}

const parseCached = memoize(parseExpression, cacheSize);

/**
 * Returns the value of an expression for a number of retries made so far. The value may be negative, infinite
 * or NaN.
 */
export function evaluate(expression: Expression, retried: number): number {
  if (typeof expression === "number") return expression;
  if (expression === "retried") return retried;
  return expression.apply(...expression.operands.map((operand) => evaluate(operand, retried)));
}

/**
 * Parses an expression such as `max(1000, pow(2, retried) * 100)`: decimal numbers, `retried`, `+ - * / ( )`,
 * and the functions pow, exp, sqrt, abs, floor, ceil, round, min, max. Throws `Refusal` with the position
 * (from 1) and what was expected there. Also throws `Refusal` for more than 256 characters or 32 levels of
 * nesting.
 */
export function parseExpression(text: string): Expression {
  if (text.length > maxExpressionLength)
    throw refusal(`has ${text.length} characters; the limit is ${maxExpressionLength}`);
  const reader = {
    tokens: tokenize(text),
    end: { kind: "end", text: "", position: text.length + 1 } as const,
    at: 0,
  };
  const expression = readExpression(reader, 0, 0);
  if (peek(reader).kind !== "end") throw unexpected(peek(reader), "an operator or the end");
  return expression;
}

type Token = { kind: "number" | "name" | "sign" | "end"; text: string; position: number };
type Reader = { tokens: readonly Token[]; end: Token; at: number };

function tokenize(text: string): Token[] {
  return [...text.matchAll(/\s*(?:(\d+(?:\.\d+)?|\.\d+)|([A-Za-z_]\w*)|(\S))/guy)].map((match) => {
    const [all, number, name, sign] = match;
    const token = number ?? name ?? sign ?? "";
    const kind = number !== undefined ? "number" : name !== undefined ? "name" : "sign";
    return { kind, text: token, position: match.index + all.length - token.length + 1 };
  });
}

/** Parses an expression up to the first operator whose strength is at most `before` (Pratt parser, 1973). */
function readExpression(reader: Reader, before: number, depth: number): Expression {
  let left = readOperand(reader, depth);
  for (;;) {
    const operator = operators.get(peek(reader).text);
    if (operator === undefined || operator.strength <= before) return left;
    take(reader);
    left = { apply: operator.apply, operands: [left, readExpression(reader, operator.strength, depth)] };
  }
}

function readOperand(reader: Reader, depth: number): Expression {
  const token = take(reader);
  if (depth > maxDepth) throw refusal(`exceeds the limit of ${maxDepth} nested levels at ${token.position}`);
  if (token.kind === "number") return Number(token.text);
  if (token.kind === "name") return token.text === "retried" ? "retried" : readCall(reader, token, depth);
  if (token.text === "-") return { apply: negate, operands: [readOperand(reader, depth + 1)] };
  if (token.text !== "(") throw unexpected(token, 'a number, retried, a function, "-" or "("');
  const inner = readExpression(reader, 0, depth + 1);
  expect(reader, ")", 'an operator or ")"');
  return inner;
}

function readCall(reader: Reader, name: Token, depth: number): Expression {
  const called = functions.get(name.text);
  if (called === undefined) throw unexpected(name, `retried or one of ${[...functions.keys()].join(", ")}`);
  const takes = `${name.text} takes ${called.takes} argument${called.takes === 1 ? "" : "s"}`;
  expect(reader, "(", `"(" (${takes})`);
  const operands = [readExpression(reader, 0, depth + 1)];
  while (operands.length < called.takes) {
    expect(reader, ",", `an operator or "," (${takes})`);
    operands.push(readExpression(reader, 0, depth + 1));
  }
  expect(reader, ")", `an operator or ")" (${takes})`);
  return { apply: called.apply, operands };
}

const peek = (reader: Reader): Token => reader.tokens[reader.at] ?? reader.end;

function take(reader: Reader): Token {
  const token = peek(reader);
  reader.at += 1;
  return token;
}

function expect(reader: Reader, sign: string, expected: string): void {
  const token = take(reader);
  if (token.text !== sign) throw unexpected(token, expected);
}

function unexpected(token: Token, expected: string): Refusal {
  const found = token.kind === "end" ? "end" : JSON.stringify(token.text);
  return refusal(`unexpected ${found} at ${token.position}; expected ${expected}`);
}

const refusal = (problem: string): Refusal => new Refusal("invalid", `retry delay: ${problem}`);
