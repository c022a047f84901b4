import { fc } from "../../seeds.ts";
import { describe, expect, test } from "vitest";
import { readJson, readJsonList } from "../../../src/api/http/json.ts";
import { createLongWork } from "../../../src/engine/clock/clock.ts";
import { createTestServer } from "../testServer.ts";

const names = (count: number): string => Array.from({ length: count }, (_, at) => `"k${at}":"x"`).join(",");
const tooMany = "body: JSON with more than";

test.each([
  {
    method: "PATCH",
    path: "/v2/topics/g",
    body: `{"headers":{${names(20_000)}}}`,
    error: `${tooMany} 20000 names`,
  },
  { method: "PATCH", path: "/v2/topics/g", body: `{${names(20_001)}}`, error: `${tooMany} 20000 names` },
  {
    method: "POST",
    path: "/v2/topics/g/endpoints",
    body: `{"endpoints":[${"{},".repeat(20_000)}{}]}`,
    error: `${tooMany} 40000 parts`,
  },
  {
    method: "POST",
    path: "/v2/sources",
    body: `{"destination":"https://e.example","settings":{${names(20_000)}}}`,
    error: `${tooMany} 20000 names`,
  },
  {
    method: "POST",
    path: "/v2/tokens",
    body: `{"verbs":[${'"publish",'.repeat(40_000)}"read"]}`,
    error: `${tooMany} 40000 parts`,
  },
])(
  "settings with too many parts are refused before a schema checks each: $method $path",
  async ({ method, path, body, error }) => {
    const { ask } = await createTestServer();
    expect(await ask(method, path, { body })).toMatchObject({ status: 400, body: { error } });
  },
);

test("as many settings as a group and a source can have are accepted", async () => {
  const { ask } = await createTestServer();
  // Names and values have 64 KiB together.
  const settings = Object.fromEntries(Array.from({ length: 3_800 }, (_, at) => [`Svc-Forward-A${at}`, ""]));
  const endpoints = Array.from({ length: 100 }, (_, at) => ({
    name: `n${at}`,
    url: `https://e.example/${at}`,
  }));
  expect((await ask("POST", "/v2/topics/g/endpoints", { body: JSON.stringify({ endpoints }) })).status).toBe(
    200,
  );
  expect((await ask("PATCH", "/v2/topics/g", { body: JSON.stringify({ headers: settings }) })).status).toBe(
    200,
  );
  const source = { destination: "https://e.example", settings };
  expect((await ask("POST", "/v2/sources", { body: JSON.stringify(source) })).status).toBe(201);
});

test("a batch names an item's first unknown member and ignores up to 100 of the other brand", async () => {
  const { ask } = await createTestServer();
  const item = (destination: string) => `[{"destination":"${destination}",${names(200_000)}}]`;
  expect(await ask("POST", "/v2/batch", { body: item("https://e.example") })).toMatchObject({
    status: 400,
    body: { error: expect.stringMatching(/^message 1 of 1: k0: unknown field/) },
  });
  const headers = { "upstash-retries": "1" };
  const passed = await ask("POST", "/v2/batch", { headers, body: item("https://e.example") });
  expect(passed.status).toBe(200);
  expect(passed.headers["waypost-ignored"]).toMatch(/^upstash-retries, k0, k1,/);
});

describe("a list that is read in slices", () => {
  const longWork = createLongWork();
  const read = (text: string, sliceBytes: number) =>
    readJsonList(Buffer.from(text), {
      longWork,
      owner: "acme",
      sliceBytes,
      convert: (items, part) => (expect(readJson(part)).toEqual(items), items),
    });

  test("equals the list read in one go, regardless of content and slices", async () => {
    const list = fc.array(fc.jsonValue({ maxDepth: 3 }), { maxLength: 20 });
    await fc.assert(
      fc.asyncProperty(
        list,
        fc.integer({ min: 1, max: 40 }),
        fc.constantFrom("", " ", "\n  "),
        async (items, sliceBytes, space) => {
          const text = `${space}${JSON.stringify(items, null, space)}${space}`;
          expect(await read(text, sliceBytes)).toEqual(readJson(Buffer.from(text)));
        },
      ),
    );
  });

  test("is refused if it would be refused in one go", async () => {
    const list = fc.array(fc.oneof(fc.jsonValue({ maxDepth: 2 }), fc.constantFrom("a,b", "[", "}", '"')), {
      maxLength: 8,
    });
    const change = fc.record({
      at: fc.nat(),
      cut: fc.nat({ max: 3 }),
      put: fc.constantFrom("", ",", "]", "[", "}", "{", '"', ":", "\\", " ", "1"),
    });
    await fc.assert(
      fc.asyncProperty(
        list,
        change,
        fc.integer({ min: 1, max: 12 }),
        async (items, { at, cut, put }, sliceBytes) => {
          const whole = JSON.stringify(items);
          const place = at % (whole.length + 1);
          const text = whole.slice(0, place) + put + whole.slice(place + cut);
          const outcome = await read(text, sliceBytes).catch((error: Error) => error.message);
          let expected: unknown;
          try {
            expected = readJson(Buffer.from(text));
          } catch (error) {
            expected = (error as Error).message;
          }
          // A body that is not a list is not read further.
          if (outcome !== null) expect(outcome).toEqual(expected);
          else expect(Array.isArray(expected)).toBe(false);
        },
      ),
      { numRuns: 2_000 },
    );
  });
});
