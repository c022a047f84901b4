import fc from "fast-check";
import { expect, test } from "vitest";
import { hostOf, parsedUrl } from "../../src/core/parsedUrl.ts";

const parts = ["protocol", "host", "hostname", "port", "origin", "username", "password", "pathname", "search"] as const;

test("has the parts that URL has, the first time and when it is remembered, however many others were asked for", () => {
  fc.assert(
    fc.property(fc.webUrl({ withQueryParameters: true, withFragments: true }), (text) => {
      const url = new URL(text);
      for (let time = 0; time < 2; time++) for (const part of parts) expect(parsedUrl(text)?.[part]).toBe(url[part]);
    }),
  );
  const odd = "HTTPS://me:p%40ss@Shop.Example:443/a b?c#d";
  for (let number = 0; number < 3_000; number++) parsedUrl(`http://shop${number}.example/`);
  expect(parsedUrl(odd)).toMatchObject({ host: "shop.example", port: "", username: "me", password: "p%40ss", pathname: "/a%20b" });
});

test("is null for what is no URL, and then there is no host", () => {
  for (const text of ["", "shop", "http://", "http://a:99999/"]) {
    expect(parsedUrl(text)).toBe(null);
    expect(() => hostOf(text)).toThrow(TypeError);
  }
  expect(hostOf("http://Shop.example:8080/a")).toBe("shop.example:8080");
});
