import { fc } from "../../../seeds.ts";
import { expect, test } from "vitest";
import { parseAddress, parseHost, parseUrl } from "../../../../src/engine/core/values/url.ts";

const parts = [
  "protocol",
  "host",
  "hostname",
  "port",
  "origin",
  "username",
  "password",
  "pathname",
  "search",
] as const;

test("the parts of a URL are those of the class URL, both when parsed and when remembered", () => {
  fc.assert(
    fc.property(fc.webUrl({ withQueryParameters: true, withFragments: true }), (text) => {
      const url = new URL(text);
      for (let time = 0; time < 2; time++)
        for (const part of parts) expect(parseUrl(text)?.[part]).toBe(url[part]);
    }),
  );
  const odd = "HTTPS://me:p%40ss@Shop.Example:443/a b?c#d";
  for (let number = 0; number < 3_000; number++) parseUrl(`http://shop${number}.example/`);
  expect(parseUrl(odd)).toMatchObject({
    host: "shop.example",
    port: "",
    username: "me",
    password: "p%40ss",
    pathname: "/a%20b",
  });
});

test("the parts of a string that is not a URL are null, and parsing its host fails", () => {
  for (const text of ["", "shop", "http://", "http://a:99999/"]) {
    expect(parseUrl(text)).toBe(null);
    expect(() => parseHost(text)).toThrow(TypeError);
  }
  expect(parseHost("http://Shop.example:8080/a")).toBe("shop.example:8080");
});

test("an endpoint has scheme, host, port and path, but no credentials, query or default port", () => {
  const { endpoint } = parseAddress("https://shop.example/hook");
  expect(endpoint).toBe("https://shop.example/hook");
  for (const same of ["?a=1", "?", "#b", "?a=1#b", "?x/y", "#?z"])
    expect(parseAddress(`https://shop.example/hook${same}`).endpoint).toBe(endpoint);
  expect(parseAddress("https://SHOP.example:443/hook").endpoint).toBe(endpoint);
  expect(parseAddress("https://me:secret@shop.example/hook").endpoint).toBe(endpoint);
  expect(
    ["https://shop.example", "https://shop.example/", "https://shop.example?a", "https://shop.example#b"].map(
      parseAddress,
    ),
  ).toEqual(Array.from({ length: 4 }, () => ({ host: "shop.example", endpoint: "https://shop.example/" })));
});

test("an endpoint has its path byte for byte as it is sent", () => {
  const all = [
    "/hook",
    "/Hook",
    "/hook/",
    "/%68ook",
    "//hook",
    "/x/../hook",
    "/hook;v=1",
    "/h%6fok",
    "/h%6Fok",
  ];
  const endpoints = all.map((path) => parseAddress(`https://shop.example${path}`).endpoint);
  expect(endpoints).toEqual(all.map((path) => `https://shop.example${path}`));
  const others = [
    "http://shop.example/hook",
    "https://shop.example:444/hook",
    "https://www.shop.example/hook",
  ];
  expect(others.map((url) => parseAddress(url).endpoint)).toEqual(others);
  expect(parseAddress("https://shop.example/caf\u00e9").endpoint).toBe("https://shop.example/caf%C3%A9");
});

test("an endpoint that is too long for an index has a fingerprint of its path", () => {
  const origin = "https://shop.example";
  const longest = `/${"x".repeat(512 - origin.length - 1)}`;
  expect(parseAddress(`${origin}${longest}?${"q".repeat(9_000)}`).endpoint).toBe(`${origin}${longest}`);
  const path = `/${"x".repeat(16_000)}`;
  const urls = [`${longest}x`, path, `${path}y`, `${path.slice(0, -1)}y`].map((one) => `${origin}${one}`);
  const endpoints = urls.map((url) => parseAddress(url).endpoint);
  expect(new Set(endpoints).size).toBe(4);
  for (const endpoint of endpoints) expect(endpoint).toMatch(/^https:\/\/shop\.example [0-9a-z]{1,11}$/);
  expect(urls.map((url) => parseAddress(`${url}?a=1#b`).endpoint)).toEqual(endpoints);
  expect(() => parseAddress("shop")).toThrow(TypeError);
});
