import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { routes } from "../../src/operations/routes.ts";
import { examplesFile, formatExamples, recordExamples } from "./record.ts";
import type { Examples } from "./recorder.ts";

const advice = "run npm run reference:examples and npm run reference, read the diff, and commit it";
const text = readFileSync(examplesFile, "utf8");

test("every operation has an example", () => {
  const examples = JSON.parse(text) as Examples;
  const operations = routes.map(({ method, path }) => `${method} ${path}`);
  expect(Object.keys(examples), "test/referenceExamples/script has an example of every operation").toEqual(
    operations,
  );
});

test("the examples are what the server sends", { tags: "long" }, async () => {
  const recorded = formatExamples(await recordExamples());
  expect(recorded, advice).toBe(text);
});
