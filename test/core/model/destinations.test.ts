import { describe, expect, test } from "vitest";
import { findForbiddenDestination, parseDestinations, normalizePattern } from "../../../src/core/model/destinations.ts";

const aimAt = (url: string) => ({ url, group: null, queue: null, callback: null, failureCallback: null });
const isMeant = (pattern: string, url: string): boolean =>
  findForbiddenDestination(parseDestinations([normalizePattern(pattern)]), aimAt(url)) === null;

describe("a pattern of URLs", () => {
  test.each([
    ["https://e.example/in/*", "https://e.example/in/"],
    ["https://e.example/in/*", "https://e.example/in/a/b?c=d#e"],
    ["https://e.example/in/*", "https://e.example/in/.well-known/..a/a;b/a%3bb/%e4%b8%ad/100%25?../%3b"],
    ["https://e.example/in/*", "HTTPS://E.EXAMPLE:443/in/a"],
    ["https://e.example/in*", "https://e.example/inside"],
    ["https://e.example/*", "https://e.example"],
    ["https://e.example/*", "https://e.example?a=b"],
    ["https://e.example/*", "https://e.example/a/..%2f..\\b"],
    ["https://e.example/in?key=a*", "https://e.example/in?key=abc"],
    ["https://e.example", "https://e.example/"],
    ["https://e.example/in", "https://e.example/in"],
    ["https://*.e.example/*", "https://a.b.e.example/x"],
    ["https://*.e.example:8443/*", "https://a.e.example:8443/x"],
    ["https://bücher.example/*", "https://xn--bcher-kva.example/"],
    ["https://xn--bcher-kva.example/*", "https://BÜCHER.example/"],
    ["http://127.0.0.1:4000/*", "http://127.0.0.1:4000/x"],
    ["http://127.0.0.1/*", "http://0x7f.1/x"],
    ["http://[::1]:4000/*", "http://[0:0::1]:4000/x"],
    ["https://e.example/%41/*", "https://e.example/%41/x"],
  ])("%s means %s", (pattern, url) => {
    expect(isMeant(pattern, url)).toBe(true);
  });

  test.each([
    ["https://e.example/in/*", "https://e.example/in", "above it"],
    ["https://e.example/in/*", "http://e.example/in/a", "another protocol"],
    ["https://e.example/in/*", "https://e.example:8443/in/a", "another port"],
    ["https://e.example:8443/*", "https://e.example/", "the usual port"],
    ["https://e.example/*", "https://e.example.evil.example/", "a longer host"],
    ["https://e.example/*", "https://evil.example/https://e.example/", "a host in the path"],
    ["https://e.example/*", "https://e.example@evil.example/", "a user name"],
    ["https://e.example/*", "https://user:pass@e.example/", "a user name before the right host"],
    ["https://e.example/*", "https://@e.example\\@evil.example/", "a backslash"],
    ["https://e.example/*", "https://e.example./", "a dot at the end of the host"],
    ["https://*.e.example/*", "https://e.example/", "the domain itself"],
    ["https://*.e.example/*", "https://evile.example/", "a domain that ends alike"],
    ["https://*.e.example/*", "https://a.e.example:81/", "another port below it"],
    ["https://*.e.example/*", "https://evil.example/a.e.example/", "the domain in the path"],
    ["https://e.example/in/*", "https://e.example/IN/a", "another case of the path"],
    ["https://e.example/in/*", "https://e.example/in/../admin", "a step up"],
    ["https://e.example/in/*", "https://e.example/admin/../in/a", "a step up that comes back"],
    ["https://e.example/in/*", "https://e.example/in/./a", "a step nowhere"],
    ["https://e.example/in/*", "https://e.example/in/..", "a step at the end"],
    ["https://e.example/in/*", "https://e.example/in/..%3b/admin", "a step with an encoded semicolon"],
    ["https://e.example/in/*", "https://e.example/in/..%253Bx=1/admin", "a step with a semicolon that is encoded twice"],
    ["https://e.example/in/*", "https://e.example/in/..%20/admin", "a step with a space"],
    ["https://e.example/in/*", "https://e.example/in/..%09/admin", "a step with a tab"],
    ["https://e.example/in/*", "https://e.example/in/..%23/admin", "a step that ends a path where it is decoded"],
    ["https://e.example/in/*", "https://e.example/in/.%252e/admin", "a dot that is encoded twice"],
    ["https://e.example/in/*", "https://e.example/in/%c0%ae%c0%ae/admin", "dots in bytes that are no UTF-8"],
    ["https://e.example/in/*", "https://e.example/in/%e0%80%af../admin", "a slash in bytes that are no UTF-8"],
    ["https://e.example/in/*", "https://e.example/in/%u002e%u002e/admin", "dots as some servers write them"],
    ["https://e.example/in/*", "https://e.example/in/%2e%2e/admin", "an encoded step"],
    ["https://e.example/in/*", "https://e.example/in/.%2E/admin", "a half encoded step"],
    ["https://e.example/in/*", "https://e.example/in/..%2fadmin", "an encoded slash"],
    ["https://e.example/in/*", "https://e.example/in/..%5Cadmin", "an encoded backslash"],
    ["https://e.example/in/*", "https://e.example/in/%252e%252e%252fadmin", "what is encoded twice"],
    ["https://e.example/in/*", "https://e.example/in/%25252e/admin", "what is encoded three times"],
    ["https://e.example/in/*", "https://e.example/in/..;/admin", "a step with a parameter"],
    ["https://e.example/in/*", "https://e.example\\in\\..\\admin", "backslashes for slashes"],
    ["https://e.example/in/*", "https://e.example//in/a", "one slash more"],
    ["https://e.example/in/*", "https://e.example/%69n/a", "another way to write a letter"],
    ["https://e.example/in", "https://e.example/in?a=b", "a query more"],
    ["https://bücher.example/*", "https://bucher.example/", "a letter that looks alike"],
    ["https://e.example/*", "https://е.example/", "a letter of another script"],
  ])("%s does not mean %s: %s", (pattern, url) => {
    expect(isMeant(pattern, url)).toBe(false);
  });

  test.each([
    "e.example/*",
    "ftp://e.example/*",
    "https://*",
    "https://*/x",
    "https://e.example*",
    "https://e.*.example/",
    "https://*.com/*",
    "https://*.127.0.0.1/*",
    "https://*.[::1]/*",
    "https://user@e.example/*",
    "https://e.example/a*b",
    "https://e.example/a/**",
    "https://e.example/in/../*",
    "https://e.example/%2e%2e/*",
    "https://e.example/#a",
    "https://e.example/a b",
    "https://e.example/in\u0001*",
    "https://e.example/\u007f",
    "https://e.example:99999/",
    "https:\\\\e.example\\*",
    "queue:",
    "queue:a b",
    "group:a/b*",
    "queue:a*b",
    "",
    `https://e.example/${"x".repeat(2_048)}`,
  ])("cannot be written as %s", (written) => {
    expect(() => normalizePattern(written)).toThrow(/^destinations: /);
  });

  test("is shown in its refusal, with what is wrong and how to write it", () => {
    const howToWrite = "give a URL such as https://example.com/orders/* or https://*.example.com/*, or queue:orders, or group:orders-*";
    const refusalOf = (written: string, problem: string) => `destinations: "${written}" ${problem}; ${howToWrite}`;
    expect(() => normalizePattern("x".repeat(201))).toThrow(refusalOf("x".repeat(200), "is no pattern of destinations"));
    expect(() => normalizePattern("x".repeat(2_048))).toThrow("is no pattern of destinations");
    expect(() => normalizePattern("x".repeat(2_049))).toThrow("is too long, the limit is 2048 characters");
    for (const [written, problem] of [
      ["queue:", "has no name behind the colon"],
      ["https://e.example*", 'ends in the middle of a host; end it with "/*"'],
      ["https://e.example:99999/", "is not a valid URL"],
      ["https://e.example/a/../b", "has steps, or encoded slashes, dots or percent signs, in its path"],
      ["https://*.localhost/", "has a star before what is no domain"],
    ] as const)
      expect(() => normalizePattern(written)).toThrow(expect.objectContaining({ code: "invalid", message: refusalOf(written, problem) }));
    expect(() => normalizePattern("a\u0001")).toThrow("has control characters");
  });

  test("is kept in one way of writing it", () => {
    expect(normalizePattern("HTTPS://*.Bücher.Example:443/a*")).toBe("https://*.xn--bcher-kva.example/a*");
  });
});

describe("destinations", () => {
  const within = (patterns: string[], aim: Partial<Parameters<typeof findForbiddenDestination>[1]>): string | null =>
    findForbiddenDestination(parseDestinations(patterns.map(normalizePattern)), { ...aimAt("https://e.example/"), ...aim });
  const callback = (url: string, more: object = {}) => ({ url, callback: null, failureCallback: null, ...more });

  test("bind callbacks, and theirs", () => {
    const all = ["https://e.example/*", "https://c.example/*"];
    expect(within(all, { callback: callback("https://c.example/"), failureCallback: callback("https://c.example/") })).toBeNull();
    for (const evil of [
      callback("https://evil.example/"),
      callback("https://c.example/", { callback: callback("https://evil.example/") }),
    ]) {
      expect(within(all, { callback: evil })).toBe("https://evil.example/");
      expect(within(all, { failureCallback: evil })).toBe("https://evil.example/");
      expect(within(all, { failureCallback: callback("https://c.example/", { failureCallback: evil }) })).toBe("https://evil.example/");
    }
  });

  test("bind where a run goes, and the run that invokes it", () => {
    const evil = "https://evil.example/";
    expect(within(["https://e.example/*"], { post: { kind: "start", url: "https://e.example/w", invoker: null } })).toBeNull();
    expect(within(["https://e.example/*"], { post: { kind: "start", url: evil } })).toBe(evil);
    expect(within(["https://e.example/*"], { post: { kind: "start", url: "https://e.example/w", invoker: { url: evil } } })).toBe(evil);
  });

  test("bind queues by themselves", () => {
    expect(within(["queue:a-*"], { queue: "a-1", callback: callback("https://anywhere.example/") })).toBeNull();
    expect(within(["queue:a-*"], { queue: "b" })).toBe("the queue b");
    expect(within(["queue:a-*"], {})).toBe("a message without a queue");
    expect(within(["queue:a", "https://other.example/*"], { queue: "a" })).toBe("https://e.example/");
    expect(within(["https://e.example/*"], { queue: "whichever" })).toBeNull();
  });

  test("bind groups by their names, or by all that is in them", () => {
    expect(within(["group:g"], { group: "g" })).toBeNull();
    expect(within(["group:*"], { group: "g" })).toBeNull();
    expect(within(["group:g"], { group: "other" })).toBe("an endpoint of the URL group other");
    expect(within(["group:g"], {})).toBe("https://e.example/");
    expect(within(["group:g"], { group: "g", callback: callback("https://c.example/") })).toBe("https://c.example/");
    expect(within(["https://e.example/*"], { group: "g" })).toBeNull();
    expect(within(["https://other.example/*"], { group: "g", url: "" })).toBe("the URL group g");
  });
});
