import { describe, expect, test } from "vitest";
import type { Scope } from "../../../../src/engine/core/model/rights.ts";
import {
  assertUnrestricted,
  assertVerb,
  findScopeRefusal,
  findDisclosureRefusal,
} from "../../../../src/engine/core/model/rights.ts";

const scope: Scope = { id: "tok_1", verbs: ["publish"], destinations: [], expiresAt: null };
const bound: Scope = { ...scope, destinations: ["https://a.example/*"] };
const remedy = { remedy: "create-token" };
const aimAt = (url: string) => ({ url, group: null, queue: null, callback: null, failureCallback: null });

test("a request requires its verb", () => {
  expect(() => assertVerb(scope, "publish")).not.toThrow();
  const problem = `token: requires 'read'; this token has only 'publish', 'manage'`;
  expect(() => assertVerb({ ...scope, verbs: ["publish", "manage"] }, "read")).toThrow(
    expect.objectContaining({ code: "forbidden", message: problem, remedy }),
  );
});

test("a request to another destination requires an unrestricted token", () => {
  expect(() => assertUnrestricted(scope, "it goes elsewhere")).not.toThrow();
  const problem = `token: it goes elsewhere; this token may publish only to https://a.example/*`;
  expect(() => assertUnrestricted(bound, "it goes elsewhere")).toThrow(
    expect.objectContaining({ code: "forbidden", message: problem, remedy }),
  );
  const many = { ...scope, destinations: ["a", "b", "c", "d", "e"] };
  expect(() => assertUnrestricted(many, "it")).toThrow(/may publish only to a, b, c, d, e$/);
  expect(() => assertUnrestricted({ ...many, destinations: [...many.destinations, "f"] }, "it")).toThrow(
    /only to a, b, c, d, e, …$/,
  );
});

test("a message may be sent only to the destinations of its token", () => {
  expect(findScopeRefusal(scope, aimAt("https://b.example/"))).toBeNull();
  expect(findScopeRefusal(bound, aimAt("https://a.example/x"))).toBeNull();
  expect(findScopeRefusal(bound, aimAt("https://b.example/"))).toMatchObject({
    refused: "forbidden",
    message: expect.stringMatching(/^token: not valid for .*b\.example.*; it may publish only to https/),
    remedy,
  });
  expect(findScopeRefusal(bound, aimAt("https://b.example/"), "its callback")?.message).toMatch(
    /^token: not valid for its callback; it may publish only to/,
  );
});

describe("stored content", () => {
  const sent = {
    content: "the dead letter",
    urls: ["https://a.example/x#1"],
    allowedUrls: ["https://a.example/x#2"],
  };

  test("may be sent to its own URLs, regardless of their fragments", () => {
    expect(findDisclosureRefusal(scope, sent)).toBeNull();
    expect(findDisclosureRefusal(scope, { ...sent, urls: ["HTTPS://A.example/x"] })).toBeNull();
    expect(
      findDisclosureRefusal(scope, { ...sent, urls: ["not a URL"], allowedUrls: ["not a URL"] }),
    ).toBeNull();
  });

  test("may be sent to other URLs only with the verb read", () => {
    const elsewhere = { ...sent, urls: ["https://a.example/x", "https://b.example/"] };
    const problem =
      "token: requires 'read' to send the dead letter to https://b.example/; this token has only 'publish'";
    expect(findDisclosureRefusal(scope, elsewhere)).toEqual({
      refused: "forbidden",
      message: problem,
      remedy,
    });
    expect(findDisclosureRefusal({ ...scope, verbs: ["publish", "read"] }, elsewhere)).toBeNull();
  });
});
