import { describe, expect, test } from "vitest";
import {
  findForbiddenDestination,
  parseDestinations,
  normalizePattern,
} from "../../../../src/engine/core/model/publishRights.ts";

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
  ])("%s matches %s", (pattern, url) => {
    expect(isMeant(pattern, url)).toBe(true);
  });

  test.each([
    ["https://e.example/in/*", "https://e.example/in", "the parent path"],
    ["https://e.example/in/*", "http://e.example/in/a", "another protocol"],
    ["https://e.example/in/*", "https://e.example:8443/in/a", "another port"],
    ["https://e.example:8443/*", "https://e.example/", "the default port"],
    ["https://e.example/*", "https://e.example.evil.example/", "a longer host"],
    ["https://e.example/*", "https://evil.example/https://e.example/", "a host in the path"],
    ["https://e.example/*", "https://e.example@evil.example/", "a user name for another host"],
    ["https://e.example/*", "https://user:pass@e.example/", "a user name before the right host"],
    ["https://e.example/*", "https://@e.example\\@evil.example/", "a backslash"],
    ["https://e.example/*", "https://e.example./", "a dot at the end of the host"],
    ["https://*.e.example/*", "https://e.example/", "the domain itself"],
    ["https://*.e.example/*", "https://evile.example/", "a domain with the same ending"],
    ["https://*.e.example/*", "https://a.e.example:81/", "a subdomain with another port"],
    ["https://*.e.example/*", "https://evil.example/a.e.example/", "the domain in the path"],
    ["https://e.example/in/*", "https://e.example/IN/a", "another case of the path"],
    ["https://e.example/in/*", "https://e.example/in/../admin", "a dot segment up"],
    ["https://e.example/in/*", "https://e.example/admin/../in/a", "a dot segment up and back"],
    ["https://e.example/in/*", "https://e.example/in/./a", "a dot segment that stays"],
    ["https://e.example/in/*", "https://e.example/in/..", "a dot segment at the end"],
    ["https://e.example/in/*", "https://e.example/in/..%3b/admin", "a dot segment with an encoded semicolon"],
    [
      "https://e.example/in/*",
      "https://e.example/in/..%253Bx=1/admin",
      "a dot segment with a semicolon encoded twice",
    ],
    ["https://e.example/in/*", "https://e.example/in/..%20/admin", "a dot segment with a space"],
    ["https://e.example/in/*", "https://e.example/in/..%09/admin", "a dot segment with a tab"],
    [
      "https://e.example/in/*",
      "https://e.example/in/..%23/admin",
      "a dot segment that ends the decoded path",
    ],
    ["https://e.example/in/*", "https://e.example/in/.%252e/admin", "a dot encoded twice"],
    ["https://e.example/in/*", "https://e.example/in/%c0%ae%c0%ae/admin", "dots as invalid UTF-8"],
    ["https://e.example/in/*", "https://e.example/in/%e0%80%af../admin", "a slash as invalid UTF-8"],
    [
      "https://e.example/in/*",
      "https://e.example/in/%u002e%u002e/admin",
      "dots in a form that some servers read",
    ],
    ["https://e.example/in/*", "https://e.example/in/%2e%2e/admin", "an encoded dot segment"],
    ["https://e.example/in/*", "https://e.example/in/.%2E/admin", "a half encoded dot segment"],
    ["https://e.example/in/*", "https://e.example/in/..%2fadmin", "an encoded slash"],
    ["https://e.example/in/*", "https://e.example/in/..%5Cadmin", "an encoded backslash"],
    ["https://e.example/in/*", "https://e.example/in/%252e%252e%252fadmin", "a dot segment encoded twice"],
    ["https://e.example/in/*", "https://e.example/in/%25252e/admin", "dots encoded three times"],
    ["https://e.example/in/*", "https://e.example/in/..;/admin", "a dot segment with a parameter"],
    ["https://e.example/in/*", "https://e.example\\in\\..\\admin", "backslashes instead of slashes"],
    ["https://e.example/in/*", "https://e.example//in/a", "an additional slash"],
    ["https://e.example/in/*", "https://e.example/%69n/a", "a needlessly encoded character"],
    ["https://e.example/in", "https://e.example/in?a=b", "an additional query"],
    ["https://bücher.example/*", "https://bucher.example/", "a similar character"],
    ["https://e.example/*", "https://е.example/", "a character of another script"],
  ])("%s does not match %s: %s", (pattern, url) => {
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

  test("is quoted in its refusal, with the problem and the accepted forms", () => {
    const howToWrite =
      "use a URL such as https://example.com/orders/* or https://*.example.com/*, queue:orders or " +
      "group:orders-*";
    const refusalOf = (written: string, problem: string) =>
      `destinations: "${written}" ${problem}; ${howToWrite}`;
    expect(() => normalizePattern("x".repeat(201))).toThrow(
      refusalOf("x".repeat(200), "is not a destination pattern"),
    );
    expect(() => normalizePattern("x".repeat(2_048))).toThrow("is not a destination pattern");
    expect(() => normalizePattern("x".repeat(2_049))).toThrow("exceeds the limit of 2048 characters");
    for (const [written, problem] of [
      ["queue:", "has no name after the colon"],
      ["https://e.example*", 'ends in the middle of a host; end it with "/*"'],
      ["https://e.example:99999/", "is not a valid URL"],
      [
        "https://e.example/a/../b",
        "has dot segments, or encoded slashes, dots or percent signs, in its path",
      ],
      ["https://*.localhost/", "has a star before a host that is not a domain"],
    ] as const)
      expect(() => normalizePattern(written)).toThrow(
        expect.objectContaining({ code: "invalid", message: refusalOf(written, problem) }),
      );
    expect(() => normalizePattern("a\u0001")).toThrow("has control characters");
  });

  test("is stored in one canonical form", () => {
    expect(normalizePattern("HTTPS://*.Bücher.Example:443/a*")).toBe("https://*.xn--bcher-kva.example/a*");
  });
});

describe("the destinations of a token", () => {
  const within = (
    patterns: string[],
    aim: Partial<Parameters<typeof findForbiddenDestination>[1]>,
  ): string | null =>
    findForbiddenDestination(parseDestinations(patterns.map(normalizePattern)), {
      ...aimAt("https://e.example/"),
      ...aim,
    });
  const callback = (url: string, more: object = {}) => ({
    url,
    callback: null,
    failureCallback: null,
    ...more,
  });

  test("restrict callbacks, and callbacks of callbacks", () => {
    const all = ["https://e.example/*", "https://c.example/*"];
    expect(
      within(all, {
        callback: callback("https://c.example/"),
        failureCallback: callback("https://c.example/"),
      }),
    ).toBeNull();
    for (const evil of [
      callback("https://evil.example/"),
      callback("https://c.example/", { callback: callback("https://evil.example/") }),
    ]) {
      expect(within(all, { callback: evil })).toBe("https://evil.example/");
      expect(within(all, { failureCallback: evil })).toBe("https://evil.example/");
      expect(
        within(all, { failureCallback: callback("https://c.example/", { failureCallback: evil }) }),
      ).toBe("https://evil.example/");
    }
  });

  test("restrict the endpoint of a run, and that of the run which invokes it", () => {
    const evil = "https://evil.example/";
    expect(
      within(["https://e.example/*"], { post: { kind: "start", url: "https://e.example/w", invoker: null } }),
    ).toBeNull();
    expect(within(["https://e.example/*"], { post: { kind: "start", url: evil } })).toBe(evil);
    expect(
      within(["https://e.example/*"], {
        post: { kind: "start", url: "https://e.example/w", invoker: { url: evil } },
      }),
    ).toBe(evil);
  });

  test("restrict queues separately", () => {
    expect(
      within(["queue:a-*"], { queue: "a-1", callback: callback("https://anywhere.example/") }),
    ).toBeNull();
    expect(within(["queue:a-*"], { queue: "b" })).toBe("the queue b");
    expect(within(["queue:a-*"], {})).toBe("a message without a queue");
    expect(within(["queue:a", "https://other.example/*"], { queue: "a" })).toBe("https://e.example/");
    expect(within(["https://e.example/*"], { queue: "whichever" })).toBeNull();
  });

  test("restrict URL groups by their names, or by all of their endpoints", () => {
    expect(within(["group:g"], { group: "g" })).toBeNull();
    expect(within(["group:*"], { group: "g" })).toBeNull();
    expect(within(["group:g"], { group: "other" })).toBe("an endpoint of the URL group other");
    expect(within(["group:g"], {})).toBe("https://e.example/");
    expect(within(["group:g"], { group: "g", callback: callback("https://c.example/") })).toBe(
      "https://c.example/",
    );
    expect(within(["https://e.example/*"], { group: "g" })).toBeNull();
    expect(within(["https://other.example/*"], { group: "g", url: "" })).toBe("the URL group g");
  });
});
