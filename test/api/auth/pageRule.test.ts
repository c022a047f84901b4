import { describe, expect, test } from "vitest";
import type { Access } from "../../../src/api/auth/pageRule.ts";
import { assertAllowedPage } from "../../../src/api/auth/pageRule.ts";

type Sent = {
  method?: string;
  access?: Access;
  authorization?: string;
  host?: string;
  origin?: string;
  "sec-fetch-site"?: string;
};
type Settings = {
  isDevelopment?: boolean;
  corsOrigins?: string[];
  publicUrl?: string;
  listensOn?: string;
  allowed?: string[];
};

/** Returns the field that a refusal names, or "accepted". */
function judge(
  { method = "POST", access = "token", authorization, ...headers }: Sent,
  { corsOrigins = [], ...hosts }: Settings = {},
): string {
  const own = { isDevelopment: true, publicUrl: "", listensOn: "127.0.0.1", allowed: [], ...hosts };
  const sent = { host: "127.0.0.1:8080", ...headers };
  const request = { method, access, authorization, header: (name: keyof typeof sent) => sent[name] };
  try {
    assertAllowedPage(request, { hosts: own, corsOrigins });
    return "accepted";
  } catch (error) {
    expect(error).toMatchObject({ code: "forbidden" });
    return /^\w+/.exec((error as Error).message)?.[0] ?? "";
  }
}

const evil = "https://evil.example";

describe("in development, the page that sends a request", () => {
  test.each<[name: string, sent: Sent, verdict: string]>([
    ["a program", {}, "accepted"],
    ["a program without a host, as in HTTP/1.0", { host: "" }, "accepted"],
    ["another site", { "sec-fetch-site": "cross-site" }, "origin"],
    ["another site, with its origin", { "sec-fetch-site": "cross-site", origin: evil }, "origin"],
    [
      "a site that claims to be this one",
      { "sec-fetch-site": "cross-site", origin: "http://127.0.0.1:8080" },
      "origin",
    ],
    ["a link or an image of another site", { method: "GET", "sec-fetch-site": "cross-site" }, "origin"],
    ["the same origin", { "sec-fetch-site": "same-origin" }, "accepted"],
    ["the same origin without a referrer", { "sec-fetch-site": "same-origin", origin: "null" }, "accepted"],
    [
      "another port of the same site",
      { "sec-fetch-site": "same-site", origin: "http://127.0.0.1:3000" },
      "accepted",
    ],
    ["the address bar", { method: "GET", "sec-fetch-site": "none" }, "accepted"],
    ["an older browser, another site", { origin: evil }, "origin"],
    ["an older browser, a hidden origin", { origin: "null" }, "origin"],
    ["an older browser, a malformed origin", { origin: "evil" }, "origin"],
    ["an older browser, an empty origin", { origin: "" }, "origin"],
    ["an older browser, this server", { origin: "http://127.0.0.1:8080" }, "accepted"],
    ["an older browser, another name of this machine", { origin: "http://localhost:3000" }, "accepted"],
    ["an older browser, another loopback address", { origin: "http://127.8.9.1:3000" }, "accepted"],
    ["an older browser, loopback by IPv6", { origin: "http://[::1]:3000" }, "accepted"],
    ["an older browser, a name like loopback", { origin: "http://localhost.evil.example" }, "origin"],
    ["an older browser, an address like loopback", { origin: "http://127.0.0.1.evil.example" }, "origin"],
    ["another address of the network", { host: "192.168.1.5:8080", origin: "http://192.168.1.6" }, "origin"],
    [
      "the same address, another port",
      { host: "192.168.1.5:8080", origin: "http://192.168.1.5:3000" },
      "accepted",
    ],
  ])("%s", (_, sent, verdict) => {
    expect(judge(sent)).toBe(verdict);
  });

  test("Sec-Fetch-Mode is not read", () => {
    const names: string[] = [];
    const header = (name: string): string | undefined => void names.push(name);
    const hosts = { isDevelopment: true, publicUrl: "", listensOn: "", allowed: [] };
    assertAllowedPage(
      { method: "POST", access: "token", authorization: undefined, header },
      { hosts, corsOrigins: [] },
    );
    expect(names.toSorted()).toEqual(["host", "origin", "sec-fetch-site"]);
  });

  const link: Sent = { method: "GET", "sec-fetch-site": "cross-site" };
  const named: Sent = { "sec-fetch-site": "cross-site", origin: evil };
  test.each([
    { name: "its origin", sent: named, corsOrigins: [evil], verdict: "accepted" },
    {
      name: "its origin, in an older browser",
      sent: { origin: evil },
      corsOrigins: [evil],
      verdict: "accepted",
    },
    { name: "another origin", sent: named, corsOrigins: ["https://app.example"], verdict: "origin" },
    { name: "the origin of a link, which has none", sent: link, corsOrigins: [evil], verdict: "origin" },
    {
      name: "no password",
      sent: { ...named, authorization: "Basic eDp5" },
      corsOrigins: ["*"],
      verdict: "origin",
    },
    { name: "every origin", sent: link, corsOrigins: ["*"], verdict: "accepted" },
    {
      name: "every origin, not every host",
      sent: { host: "evil.example" },
      corsOrigins: ["*"],
      verdict: "host",
    },
  ])("--cors-origin allows $name: $verdict", ({ sent, corsOrigins, verdict }) => {
    expect(judge(sent, { corsOrigins })).toBe(verdict);
  });
});

describe("in development, the routes that another site or a rebound name", () => {
  test.each<[access: Access, method: string, sent: "accepted" | "refused"]>([
    ["token", "GET", "refused"],
    ["token", "POST", "refused"],
    ["account", "GET", "refused"],
    ["operator", "DELETE", "refused"],
    ["console", "POST", "refused"],
    ["console", "DELETE", "refused"],
    ["console", "GET", "accepted"],
    ["console", "HEAD", "accepted"],
    ["open", "GET", "accepted"],
    ["hook", "GET", "accepted"],
    ["hook", "POST", "accepted"],
    ["source", "POST", "accepted"],
  ])("may use: %s %s is %s", (access, method, sent) => {
    const expected = (field: string): string => (sent === "accepted" ? sent : field);
    expect(judge({ access, method, "sec-fetch-site": "cross-site" })).toBe(expected("origin"));
    expect(judge({ access, method, origin: evil })).toBe(expected("origin"));
    expect(judge({ access, method, host: "evil.example" })).toBe(expected("host"));
  });
});

describe("in development, a host", () => {
  test.each([
    "127.0.0.1:8080",
    "192.168.1.5",
    "[::1]:8080",
    "[2001:db8::1]",
    "localhost:8080",
    "LOCALHOST",
    "localhost.",
    "app.localhost:8080",
    "waypost:8080",
    "waypost_queue:8080",
    "host.docker.internal:8080",
    "my-mac.local:8080",
    "waypost.default.svc.cluster.local",
    "tunnel.example",
    "TUNNEL.example:443",
    "listens.example:8080",
    "allowed.example:9000",
  ])("of this server: %s", (host) => {
    const names = {
      publicUrl: "https://tunnel.example/queue",
      listensOn: "listens.example",
      allowed: ["allowed.example"],
    };
    expect(judge({ host }, names)).toBe("accepted");
  });

  test.each([
    "evil.example",
    "evil.example:8080",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "evil.internal.example",
    "evillocalhost.example",
    "sub.allowed.example",
    "allowed.example.evil.example",
    "127.0.0.1:8080, evil.example",
    "evil.example/localhost",
    "user@localhost",
    "a b",
    "[::1",
  ])("of a stranger: %s", (host) => {
    expect(judge({ host }, { allowed: ["allowed.example"] })).toBe("host");
  });

  test("is refused with the setting that allows it", () => {
    const own = { isDevelopment: true, publicUrl: "", listensOn: "127.0.0.1", allowed: [] };
    const header = (name: string): string | undefined => (name === "host" ? "Queue.example:8080" : undefined);
    expect(() =>
      assertAllowedPage(
        { method: "POST", access: "token", authorization: undefined, header },
        { hosts: own, corsOrigins: [] },
      ),
    ).toThrow("--allow-host queue.example,");
  });
});

describe("outside of development", () => {
  const basic = "Basic b3BlcmF0b3I6cGFzc3dvcmQ=";
  test.each<[name: string, sent: Sent, verdict: string]>([
    [
      "a token counts from every page",
      { authorization: "Bearer t", "sec-fetch-site": "cross-site", origin: evil },
      "accepted",
    ],
    ["a token counts in the query", { "sec-fetch-site": "cross-site", origin: "null" }, "accepted"],
    ["every host counts", { authorization: "Bearer t", host: "evil.example" }, "accepted"],
    [
      "a password that the browser may have added",
      { authorization: basic, access: "operator", "sec-fetch-site": "cross-site" },
      "origin",
    ],
    ["a password, in an older browser", { authorization: basic, access: "account", origin: evil }, "origin"],
    [
      "a password from a page behind a tunnel that changes the host",
      { authorization: basic, access: "account", origin: "https://tunnel.example" },
      "accepted",
    ],
    [
      "a password from another port of this host",
      {
        authorization: basic,
        access: "account",
        "sec-fetch-site": "same-site",
        origin: "http://127.0.0.1:81",
      },
      "origin",
    ],
    [
      "a password from another port of this host, in an older browser",
      { authorization: basic, access: "account", origin: "http://127.0.0.1:81" },
      "origin",
    ],
    [
      "a password from another loopback name, in an older browser",
      { authorization: basic, access: "account", origin: "http://localhost:8080" },
      "origin",
    ],
    [
      "a password from a hidden origin",
      { authorization: basic, access: "account", origin: "null" },
      "origin",
    ],
    [
      "a password from this server, in an older browser",
      { authorization: basic, access: "account", origin: "http://127.0.0.1:8080" },
      "accepted",
    ],
    [
      "a password from this server behind a proxy that names the usual port",
      { authorization: basic, access: "account", origin: "https://queue.example", host: "Queue.example:443" },
      "accepted",
    ],
    [
      "a password from the address bar",
      { method: "GET", authorization: basic, access: "account", "sec-fetch-site": "none" },
      "accepted",
    ],
    [
      "a password of a program",
      { authorization: basic, access: "account", host: "queue.example" },
      "accepted",
    ],
    [
      "a password of a page of this server",
      { authorization: basic, access: "account", "sec-fetch-site": "same-origin", host: "queue.example" },
      "accepted",
    ],
  ])("%s", (_, sent, verdict) => {
    expect(judge(sent, { isDevelopment: false, publicUrl: "https://tunnel.example" })).toBe(verdict);
  });
});
