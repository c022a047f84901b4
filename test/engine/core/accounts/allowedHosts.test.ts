import { expect, test } from "vitest";
import {
  findHostRefusal,
  maxAllowedHosts,
  maySendTo,
  normalizeAllowedHosts,
} from "../../../../src/engine/core/accounts/allowedHosts.ts";

test("hosts are kept in the form that URLs have, each once", () => {
  const hosts = [
    "API.example.com",
    "api.example.com",
    "*.Shop.example",
    "10.0.0.7",
    "[::1]",
    "bücher.example",
  ];
  expect(normalizeAllowedHosts(hosts)).toEqual([
    ...["api.example.com", "*.shop.example", "10.0.0.7", "[::1]", "xn--bcher-kva.example"],
  ]);
});

test.each([
  ...["", "*", "*.", "*.com", "*.10.0.0.7", "*.[::1]", "a.*.example", "api.example.com:443", "a b.example"],
  ...["https://api.example.com", "api.example.com/in", "user@api.example.com", "a?b", "a\\b", "%zz"],
])("%j is not a host", (text) => {
  expect(() => normalizeAllowedHosts(["fine.example", text])).toThrow(/^allowedHosts: ".*" is not a host/);
});

test("a list has at least one host, and at most as many as the limit", () => {
  const hosts = Array.from({ length: maxAllowedHosts + 1 }, (_none, at) => `h${at}.example`);
  expect(normalizeAllowedHosts(hosts.slice(1))).toHaveLength(maxAllowedHosts);
  expect(() => normalizeAllowedHosts(hosts)).toThrow("allowedHosts: 201 exceeds the limit of 200");
  expect(() => normalizeAllowedHosts([])).toThrow("allowedHosts: is empty; give hosts, or null");
});

const allowedHosts = normalizeAllowedHosts(["api.example.com", "*.shop.example", "10.0.0.7"]);
test.each<[url: string, may: boolean]>([
  ["https://api.example.com/any/path", true],
  ["http://API.example.com:8443/", true],
  ["https://eu.shop.example/", true],
  ["https://a.b.shop.example/", true],
  ["http://10.0.0.7/", true],
  ["http://167772167/", true],
  ["https://shop.example/", false],
  ["https://evilshop.example/", false],
  ["https://api.example.com.evil.example/", false],
  ["https://api.example.com@evil.example/", false],
  ["https://evil.example/?https://api.example.com", false],
  ["https://evil.example#@api.example.com", false],
  ["https://xapi.example.com/", false],
  ["http://10.0.0.8/", false],
])("an account with a list may send to %s: %s", (url, may) => {
  expect(maySendTo({ allowedHosts }, url)).toBe(may);
  expect(findHostRefusal({ allowedHosts }, ["https://api.example.com/", url]) === null).toBe(may);
  expect(maySendTo({}, url)).toBe(true);
  expect(maySendTo({ allowedHosts: null }, url)).toBe(true);
});

test("the refusal names the host and at most five allowed ones, but no endpoint of a group", () => {
  const hosts = ["a", "b", "c", "d", "e", "f"].map((name) => `${name}.example`);
  const urls = ["https://evil.example/secret"];
  expect(findHostRefusal({ allowedHosts: hosts }, urls)).toEqual({
    refused: "forbidden",
    message:
      "destination: the host evil.example is not allowed for this account; use one of a.example, " +
      "b.example, c.example, d.example, e.example, …",
    remedy: { remedy: "allow-host" },
  });
  const inGroup = findHostRefusal({ allowedHosts: hosts.slice(0, 1) }, urls, "orders");
  expect(inGroup?.message).toBe(
    "destination: the host of an endpoint of the URL group orders is not allowed for this account; " +
      "use one of a.example",
  );
});
