import { expect, test } from "vitest";
import { tells } from "../../src/api/forward.ts";
import { house, token } from "./house.ts";

const secret = "eyJVc2VySUQiOiJhY21lIiwiUGFzc3dvcmQiOiJwYXM/c3cvb3JkIn0+Pz4/Pj8=";
const percent = (text: string): string => [...text].map((letter) => `%${letter.charCodeAt(0).toString(16)}`).join("");

test.each([
  ["as it is", secret],
  ["among other text", `Bearer ${secret}, more`],
  ["without padding", secret.slice(0, -1)],
  ["in the alphabet of URLs", secret.replaceAll("+", "-").replaceAll("/", "_")],
  ["percent-encoded", encodeURIComponent(secret)],
  ["percent-encoded, every letter", percent(secret)],
  ["percent-encoded twice", encodeURIComponent(encodeURIComponent(secret))],
  ["percent-encoded twice, every letter", percent(percent(secret))],
  ["percent-encoded twice, without padding, in a query", `a=1&t=${encodeURIComponent(encodeURIComponent(secret.slice(0, -1)))}&b`],
  ["percent-encoded often", Array.from({ length: 40 }).reduce<string>((text) => encodeURIComponent(text), secret)],
])("a token is found %s", (_, value) => {
  expect(tells(value, secret)).toBe(true);
});

test.each(["", "100 % sure", "%zz %2", "a%20b%2520c", "text/plain; q=0.5", secret.slice(0, 30), encodeURIComponent("x/y=z")])(
  "%s tells nothing",
  (value) => {
    expect(tells(value, secret)).toBe(false);
  },
);

test("a header that has the token in it is not forwarded, however it is encoded, and others are", async () => {
  const home = await house();
  const twice = encodeURIComponent(encodeURIComponent(token));
  const headers = { "svc-header-forward": "true", "x-twice": twice, "x-bare": token.replace(/=+$/, ""), "x-other": "a%2520b" };
  expect((await home.ask("POST", "/v2/publish/https://example.com", { headers, body: "x" })).status).toBe(200);
  const names = home.delivery().message.headers.map(([name]) => name.toLowerCase());
  expect(names).toContain("x-other");
  expect(names).not.toEqual(expect.arrayContaining(["x-twice"]));
  expect(names).not.toEqual(expect.arrayContaining(["x-bare"]));
});
