import { describe, expect, test } from "vitest";
import type { Scope } from "../../../src/core/model/rights.ts";
import { mustBeUnrestricted, mustHaveVerb, findScopeRefusal, findDisclosureRefusal } from "../../../src/core/model/rights.ts";

const scope: Scope = { id: "tok_1", verbs: ["publish"], destinations: [], expiresAt: null };
const bound: Scope = { ...scope, destinations: ["https://a.example/*"] };
const another = '"waypost token create" or POST /v2/tokens makes another one';
const aimAt = (url: string) => ({ url, group: null, queue: null, callback: null, failureCallback: null });

test("a request needs its verb", () => {
  expect(() => mustHaveVerb(scope, "publish")).not.toThrow();
  const problem = `token: this request needs the verb read, and the token has publish, manage only; ${another}`;
  expect(() => mustHaveVerb({ ...scope, verbs: ["publish", "manage"] }, "read")).toThrow(
    expect.objectContaining({ code: "forbidden", message: problem }),
  );
});

test("a request that goes elsewhere needs a token that is bound to nothing", () => {
  expect(() => mustBeUnrestricted(scope, "it goes elsewhere")).not.toThrow();
  const problem = `token: it goes elsewhere, and the token may publish to https://a.example/* only; ${another}`;
  expect(() => mustBeUnrestricted(bound, "it goes elsewhere")).toThrow(expect.objectContaining({ code: "forbidden", message: problem }));
  const many = { ...scope, destinations: ["a", "b", "c", "d", "e"] };
  expect(() => mustBeUnrestricted(many, "it")).toThrow("may publish to a, b, c, d, e only;");
  expect(() => mustBeUnrestricted({ ...many, destinations: [...many.destinations, "f"] }, "it")).toThrow("to a, b, c, d, e, … only;");
});

test("a letter goes where the token may publish", () => {
  expect(findScopeRefusal(scope, aimAt("https://b.example/"))).toBeNull();
  expect(findScopeRefusal(bound, aimAt("https://a.example/x"))).toBeNull();
  expect(findScopeRefusal(bound, aimAt("https://b.example/"))).toMatchObject({
    refused: "forbidden",
    message: expect.stringMatching(/^token: .*b\.example.* needs a token with the verb publish for it, and this one may publish to https/),
  });
  expect(findScopeRefusal(bound, aimAt("https://b.example/"), "its callback")?.message).toMatch(/^token: its callback needs a token/);
});

describe("stored content", () => {
  const sent = { content: "the dead letter", urls: ["https://a.example/x#1"], allowedUrls: ["https://a.example/x#2"] };

  test("goes to its own URLs, whatever their fragments", () => {
    expect(findDisclosureRefusal(scope, sent)).toBeNull();
    expect(findDisclosureRefusal(scope, { ...sent, urls: ["HTTPS://A.example/x"] })).toBeNull();
    expect(findDisclosureRefusal(scope, { ...sent, urls: ["not a URL"], allowedUrls: ["not a URL"] })).toBeNull();
  });

  test("goes elsewhere with the verb read only", () => {
    const elsewhere = { ...sent, urls: ["https://a.example/x", "https://b.example/"] };
    const problem =
      "token: the dead letter would be sent to https://b.example/, which needs the verb read as well, and the token has publish only";
    expect(findDisclosureRefusal(scope, elsewhere)).toEqual({ refused: "forbidden", message: `${problem}; ${another}` });
    expect(findDisclosureRefusal({ ...scope, verbs: ["publish", "read"] }, elsewhere)).toBeNull();
  });
});
