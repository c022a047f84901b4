import { describe, expect, test } from "vitest";
import type { Resolve } from "../../../../src/engine/delivery/http/dns.ts";
import { createEgress } from "../../../../src/engine/delivery/http/egress.ts";
import { readConfig } from "../../../../src/settings/config.ts";
import { httpDestination, makeDelivery, start } from "./destination.ts";

// Names in WAYPOST_EGRESS_ALLOW, which may have private addresses.

const hostnameOf = (url: string): string => new URL(url).hostname.replace(/^\[|\]$/g, "");

/** Opens a connection to a URL, whose name always has these addresses. Returns why it fails, or null. */
async function open(url: string, allow: readonly string[], addresses: readonly string[]): Promise<string> {
  const egress = createEgress({ allow, resolve: async () => addresses });
  const { hostname, protocol, host } = new URL(url);
  const target = { hostname: hostname.replace(/^\[|\]$/g, ""), host, protocol, port: "1" };
  return new Promise((resolve) =>
    egress.connector(20)(target, (error, socket) => {
      socket?.destroy();
      resolve(error?.message ?? "");
    }),
  );
}
const isRefused = async (...args: Parameters<typeof open>): Promise<boolean> =>
  (await open(...args)).includes("is not public");

describe("an allowed name", () => {
  test.each([
    "10.0.0.7",
    "172.18.0.3",
    "192.168.1.7",
    "100.64.0.9",
    "::ffff:10.0.0.7",
    "fd12::7",
    "fec0::7",
    "8.8.8.8",
  ])("may have the address %s, which other names may not, unless it is public", async (address) => {
    expect(await isRefused("http://lobe:3210/", ["lobe"], [address])).toBe(false);
    expect(await isRefused("http://other:3210/", ["lobe"], [address])).toBe(address !== "8.8.8.8");
  });

  test.each([
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",
    "::1",
    "::",
    "::ffff:127.0.0.1",
    "::ffff:7f00:1",
    "::127.0.0.1",
    "::ffff:0:127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::10.0.0.7",
    "64:ff9b:1::7f00:1",
    "2002:7f00:1::",
    "169.254.169.254",
    "169.254.170.2",
    "::ffff:169.254.169.254",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "fe80::1",
    "fe80::1%eth0",
    "fd00:ec2::254",
    "fd00:42::42",
    "fd20:ce::254",
    "224.0.0.1",
    "255.255.255.255",
    "ff02::1",
    "garbage",
  ])("may not have the address %s, which only an address rule allows", async (address) => {
    const allow = ["lobe", "*.internal"];
    expect(await isRefused("http://lobe/", allow, [address])).toBe(true);
    expect(await isRefused("http://metadata.google.internal/", allow, [address])).toBe(true);
    // Nor with an address that it may have.
    expect(await isRefused("http://lobe/", allow, ["10.0.0.7", address])).toBe(true);
  });

  test("can have a loopback address if an address rule allows it", async () => {
    expect(await isRefused("http://lobe/", ["lobe", "127.0.0.1"], ["127.0.0.1"])).toBe(false);
    expect(await isRefused("http://other/", ["lobe", "127.0.0.1"], ["127.0.0.1"])).toBe(false);
    expect(await isRefused("http://lobe/", ["lobe", "127.0.0.1"], ["127.0.0.2"])).toBe(true);
  });

  test.each([
    ["lobe", "http://LOBE/", true],
    ["LOBE", "http://lobe/", true],
    ["lobe", "http://lobe./", true],
    ["lobe.", "http://lobe/", true],
    ["lobe", "http://lobe../", false],
    ["lobe", "http://l%6fbe/", true],
    ["lobe", "http://ｌｏｂｅ/", true],
    ["lobe", "http://user:lobe@other/", false],
    ["lobe", "http://lobe@other/", false],
    ["lobe", "http://other/lobe", false],
    ["lobe", "http://other#@lobe", false],
    ["lobe", "http://other\\@lobe/", false],
    ["lobe", "http://lobe.other/", false],
    ["lobe", "http://a.lobe/", false],
    ["lobe", "http://alobe/", false],
    ["lobe_api", "http://lobe_api/", true],
    ["*.internal", "http://a.internal/", true],
    ["*.internal", "http://A.B.Internal./", true],
    ["*.internal", "http://a。internal/", true],
    ["*.internal", "http://internal/", false],
    ["*.internal", "http://ainternal/", false],
    ["*.internal", "http://a.internal.example/", false],
    ["*.internal", "http://.internal/", false],
    ["bücher.test", "http://xn--bcher-kva.test/", true],
    ["xn--bcher-kva.test", "http://BÜCHER.test/", true],
    ["bücher.test", "http://bucher.test/", false],
    // With a Cyrillic o.
    ["lobe", "http://lоbe/", false],
  ])("%j is compared with the name in the URL %j: %s", async (entry, url, isAllowed) => {
    expect(await isRefused(url, [entry], ["10.0.0.7"])).toBe(!isAllowed);
    expect(createEgress({ allow: [entry] }).mayCall("10.0.0.7", hostnameOf(url))).toBe(isAllowed);
  });

  test("allows no address that is written in a URL, in any form", async () => {
    for (const host of ["10.0.0.7", "10.7", "0xa000007", "167772167", "012.0.0.7", "[::ffff:10.0.0.7]"]) {
      const resolve: Resolve = () => expect.unreachable("an address needs no name server");
      const egress = createEgress({ allow: ["lobe", "*.internal"], resolve });
      expect(egress.mayCall(hostnameOf(`http://${host}/`))).toBe(false);
      expect(await isRefused(`http://${host}/`, ["lobe", "*.internal"], ["10.0.0.7"])).toBe(true);
    }
  });

  test("is resolved once for a connection, and checked again for the next one", async () => {
    const answers = [["10.0.0.7"], ["127.0.0.1"], ["169.254.169.254"]];
    const seen: number[] = [];
    const egress = createEgress({
      allow: ["lobe"],
      resolve: async () => {
        seen.push(answers.length);
        return answers.shift() ?? [];
      },
    });
    const connect = (): Promise<string> =>
      new Promise((resolve) =>
        egress.connector(20)({ hostname: "lobe", host: "lobe", protocol: "http:", port: "1" }, (...[error]) =>
          resolve(error?.message ?? ""),
        ),
      );
    expect(await connect()).not.toContain("is not public");
    expect(await connect()).toContain("address of lobe is not public");
    expect(egress.findHostRefusal("lobe")).toMatchObject({ address: "127.0.0.1", isResolved: true });
    expect(await connect()).toContain("address of lobe is not public");
    expect(seen).toEqual([3, 2, 1]);
  });

  test("is not called by a redirect: none is followed", async () => {
    const paths: string[] = [];
    const port = await httpDestination((incoming, response) => {
      paths.push(incoming.url ?? "");
      response.writeHead(307, { location: `http://lobe:${port}/second` }).end();
    });
    const deliver = start({ allow: ["127.0.0.1", "lobe"], resolve: async () => ["127.0.0.1"] });
    expect((await deliver(makeDelivery(`http://shop.test:${port}/first`))).status).toBe(307);
    expect(paths).toEqual(["/first"]);
  });
});

test("a refusal tells the operator the entry that helps, and others no more than the name", async () => {
  const told: unknown[] = [];
  const addresses = ["10.0.0.7", "127.0.0.1", "169.254.169.254", "fd12::7"];
  const answers = [...addresses];
  const egress = createEgress({
    allow: ["known"],
    resolve: async () => [answers.shift() ?? ""],
    onRefusal: (host, { address, allow }) => told.push([host, allow, egress.findAllowEntry(address, host)]),
  });
  const connect = (hostname: string): Promise<string> =>
    new Promise((resolve) =>
      egress.connector(20)({ hostname, host: hostname, protocol: "http:", port: "1" }, (...[error]) =>
        resolve(error?.message ?? ""),
      ),
    );
  const texts = [];
  while (answers.length > 0) texts.push(await connect("lobe"));
  expect(new Set(texts)).toEqual(
    new Set([
      "address of lobe is not public: the operator of the server can look it up, " +
        "and allow the name with WAYPOST_EGRESS_ALLOW=lobe; a loopback address needs its own entry",
    ]),
  );
  answers.push("127.0.0.1");
  // The text does not tell whether an entry allows the name.
  expect(await connect("known")).toBe(texts[0]?.replaceAll("lobe", "known"));
  await connect("10.0.0.7");
  await connect("fd12::7");
  expect(told).toEqual([
    ["lobe", "lobe", "lobe"],
    ["lobe", "lobe", "127.0.0.1"],
    ["lobe", "lobe", null],
    ["lobe", "lobe", "lobe"],
    ["known", "known", "127.0.0.1"],
    ["10.0.0.7", "10.0.0.7", "10.0.0.7"],
    ["fd12::7", "fd12::7", "fd12::7"],
  ]);
  expect(egress.findAllowEntry("localhost", "a.localhost")).toBe("127.0.0.0/8,::1/128");
  expect(egress.findAllowEntry("fd12::7", "[fd12::7]")).toBe("fd12::7");
});

test.each([
  // Names of this machine, and wildcards at another place.
  ...["localhost", "a.localhost", "*.localhost", "LOCALHOST.", "*", "*.", "a.*", "*lobe", "lobe:3210"],
  // Addresses in another form, and mistakes.
  ...["10.0.0.300", "10.0.0", "0x7f.1", "2130706433", "*.10", "[::1]"],
  ...["http://lobe", "lobe/", "a b", "lobe\\", "a%2eb", "a,b", ""],
])("%j is refused with advice", (entry) => {
  expect(() => createEgress({ allow: [entry] })).toThrow(/^".*" is not a network; use a/);
});

test("only destinations can be allowed by name, not proxies, and not the networks of this server", () => {
  expect(readConfig({ egressAllow: "lobe, *.internal,10.0.0.0/8" }, {}).egressAllow).toEqual([
    "lobe",
    "*.internal",
    "10.0.0.0/8",
  ]);
  expect(() => readConfig({ trustProxy: "lobe" }, {})).toThrow(/"lobe" is not a network; .* or loopback/);
  expect(() => readConfig({ trustProxy: "*.internal" }, {})).toThrow(/is not a network/);
  expect(() => readConfig({ sendsFrom: "lobe" }, {})).toThrow(/"lobe" is not a network; use a network/);
});
