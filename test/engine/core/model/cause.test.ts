import { expect, test } from "vitest";
import { findCause, isCauseId, toEndpoint } from "../../../../src/engine/core/model/cause.ts";
import { fc } from "../../../seeds.ts";

const failed = (text: string, more: Partial<Parameters<typeof findCause>[0]> = {}) =>
  findCause({
    url: "https://a.example/in",
    redaction: null,
    status: 500,
    error: null,
    body: Buffer.from(text),
    ...more,
  });

test.each([
  ["https://a.example", "https://a.example"],
  ["https://a.example/", "https://a.example/"],
  ["https://a.example:8080/v1/orders", "https://a.example:8080/v1/orders"],
  ["https://a.example/orders/17", "https://a.example/orders/…"],
  ["https://a.example/orders/17/items", "https://a.example/orders/…/items"],
  ["https://a.example/u/3f2504e0-4f89-11d3-9a0c-0305e82c3301", "https://a.example/u/…"],
  ["https://a.example/in?user=1&secret=2", "https://a.example/in"],
  ["https://a.example?user=1", "https://a.example"],
  ["https://a.example/oauth2/callback", "https://a.example/oauth2/callback"],
])("the endpoint of %s is %s", (url, expected) => {
  expect(toEndpoint(url)).toBe(expected);
});

test("a cause shows what the response says, with the code at its beginning", () => {
  expect(failed('{"message":"ORA-00060: deadlock detected"}').error).toBe("ORA-00060: deadlock detected");
  expect(failed("E11000: duplicate key 17").error).toBe("E11000: duplicate key …");
  expect(failed("order 17 is gone").error).toBe("order … is gone");
  expect(failed("", { status: null, error: "connection refused" }).error).toBe("connection refused");
  expect(failed("<html>").error).toBe("the endpoint answered with status …");
});

test("a cause is the same for one endpoint, status and error", () => {
  const { id } = failed("ORD-00017: order 17 is gone");
  expect(id).toMatch(/^[\da-z]{11}$/);
  expect(failed("ORD-00018: order 18 is gone").id).toBe(id);
  expect(failed("ORD-00018: order 18 is gone", { url: "https://a.example/in?x=1" }).id).toBe(id);
  expect(failed("ORD-00017: order 17 is gone", { url: "https://a.example/out" }).id).not.toBe(id);
  expect(failed("ORD-00017: order 17 is gone", { status: 503 }).id).not.toBe(id);
  expect(failed("ORD-00017: order 17 has gone").id).not.toBe(id);
});

test("a cause does not depend on a redacted response", () => {
  const redaction = { body: true, headers: false } as const;
  expect(failed("secret", { redaction })).toEqual(failed("other", { redaction }));
  expect(failed("secret", { redaction }).error).not.toContain("secret");
});

test("any response has a cause of the same length", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), fc.webUrl(), (text, url) => {
      const { id, error } = failed(text, { url });
      expect(isCauseId(id)).toBe(true);
      expect(error.length).toBeLessThanOrEqual(320);
    }),
  );
  expect(["", "A2345678901", "123", "0000000000000"].filter(isCauseId)).toEqual([]);
});
