import { fc } from "../../../seeds.ts";
import { describe, expect, test } from "vitest";
import { createEgress } from "../../../../src/engine/delivery/http/egress.ts";
import type { Resolve } from "../../../../src/engine/delivery/http/dns.ts";
import { ask, createConnections, httpDestination } from "./destination.ts";

const strict = createEgress({ allow: [] });

describe("by default", () => {
  test.each([
    "8.8.8.8",
    "1.1.1.1",
    "100.63.255.255",
    "172.32.0.1",
    "192.0.1.1",
    "223.255.255.255",
    "2606:4700::1111",
    "2a00::1",
    "64:ff9b::8.8.8.8",
    "::ffff:8.8.8.8",
  ])("%s may be called", (address) => expect(strict.mayCall(address)).toBe(true));

  const denied = `
    0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200
    100.127.255.255 127.0.0.1 127.255.255.255 168.63.129.16 169.254.169.254
    172.16.0.1 172.31.255.255 192.0.0.192 192.0.2.1 192.88.99.1
    192.168.0.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1
    224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
    :: ::1 ::7f00:1 ::8.8.8.8 ::ffff:10.0.0.1
    ::ffff:7f00:1 ::ffff:0:8.8.8.8 64:ff9b::10.0.0.1 64:ff9b:1::8.8.8.8 100::1 100:0:0:1::1
    2001::1 2001:0:808:808::1 2001:2::1 2001:10::1 2001:20::1
    2001:db8::1 2002:808:808::1 2002:7f00:1::1 3fff::1 3fff:fff::1 4000::1
    5f00::1 fc00::1 fd00:ec2::254 fdff::1 fe80::1
    fe80::1%eth0 fec0::1 ff02::1 ff0e::1 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff`;
  test.each(denied.trim().split(/\s+/))("%s may not be called", (address) => {
    expect(strict.mayCall(address)).toBe(false);
  });

  test.each(["", "localhost", "1.2.3", "8.8.8.8.", "0x8080808", "[2a00::1]", "8.8.8.8/32", "2a00::1::"])(
    "%j is not an address, so it may not be called",
    (text) => {
      expect(strict.mayCall(text)).toBe(false);
    },
  );
});

type Quad = [number, number, number, number];
const byte = fc.nat(255);
const inNetwork = (first: readonly number[]): fc.Arbitrary<Quad> =>
  fc.tuple(byte, byte, byte, byte).map((quad) => quad.map((value, at) => first[at] ?? value) as Quad);
const privateQuad = fc.oneof(
  ...[[10], [127], [0], [192, 168], [169, 254], [172, 16], [172, 31], [100, 64], [198, 19], [224], [255]].map(
    inNetwork,
  ),
);
const publicQuad = fc.oneof(...[[8], [1], [52], [104], [185], [172, 32], [192, 169]].map(inNetwork));
const radix = fc.constantFrom(
  (value: number) => String(value),
  (value: number) => `0x${value.toString(16)}`,
  (value: number) => `0${value.toString(8)}`,
);
const pair = (high: number, low: number): string => ((high << 8) | low).toString(16);

/** A URL host for the same IPv4 address as WHATWG reads it: one to four parts, each in any base. */
const spelled = (quad: fc.Arbitrary<Quad>): fc.Arbitrary<string> =>
  fc
    .tuple(
      quad,
      fc.integer({ min: 1, max: 4 }),
      fc.array(radix, { minLength: 4, maxLength: 4 }),
      fc.constantFrom("", "."),
    )
    .map(([bytes, parts, bases, dot]) => {
      const last = bytes.slice(parts - 1).reduce((sum, value) => sum * 256 + value, 0);
      return [...bytes.slice(0, parts - 1), last].map((value, at) => bases[at]?.(value)).join(".") + dot;
    });

const embeddings: ((quad: Quad) => string)[] = [
  ([a, b, c, d]) => `[::ffff:${a}.${b}.${c}.${d}]`,
  ([a, b, c, d]) => `[0:0:0:0:0:FFFF:${pair(a, b)}:${pair(c, d)}]`,
  ([a, b, c, d]) => `[64:ff9b::${a}.${b}.${c}.${d}]`,
];
const hidden: ((quad: Quad) => string)[] = [
  ...embeddings,
  ([a, b, c, d]) => `[::${a}.${b}.${c}.${d}]`,
  ([a, b, c, d]) => `[64:ff9b:1::${pair(a, b)}:${pair(c, d)}]`,
  ([a, b, c, d]) => `[2002:${pair(a, b)}:${pair(c, d)}::1]`,
  ([a, b, c, d]) => `[2001:0:${pair(a, b)}:${pair(c, d)}::1]`,
  ([a, b, c, d]) => `[2001::${pair(a ^ 255, b ^ 255)}:${pair(c ^ 255, d ^ 255)}]`,
];

/** Returns the address that would be called for a URL with this host. */
const addressIn = (host: string): string => new URL(`http://${host}/`).hostname.replace(/^\[|\]$/g, "");

describe("regardless of its spelling", () => {
  test("a private IPv4 address may not be called, a public one may", () => {
    const verdict = (host: string): boolean => strict.mayCall(addressIn(host));
    fc.assert(
      fc.property(spelled(privateQuad), (host) => {
        expect(verdict(host)).toBe(false);
      }),
    );
    fc.assert(
      fc.property(spelled(publicQuad), (host) => {
        expect(verdict(host)).toBe(true);
      }),
    );
  });

  test("a private IPv4 address within an IPv6 address may not be called", () => {
    fc.assert(
      fc.property(privateQuad, fc.constantFrom(...hidden), (quad, embed) => {
        expect(strict.mayCall(addressIn(embed(quad)))).toBe(false);
        expect(strict.mayCall(embed(quad).slice(1, -1))).toBe(false);
      }),
    );
  });

  test("a public IPv4 address, mapped or by NAT64, may be called", () => {
    fc.assert(
      fc.property(publicQuad, fc.constantFrom(...embeddings), (quad, embed) => {
        expect(strict.mayCall(addressIn(embed(quad)))).toBe(true);
      }),
    );
  });

  test("an IPv6 address gets the same verdict in all its forms, with or without a zone", () => {
    fc.assert(
      fc.property(fc.ipV6(), (address) => {
        const verdict = strict.mayCall(address);
        expect(strict.mayCall(addressIn(`[${address}]`))).toBe(verdict);
        expect(strict.mayCall(address.toUpperCase())).toBe(verdict);
        expect(strict.mayCall(`${address}%eth0`)).toBe(verdict);
      }),
    );
  });
});

test.each([
  [["127.0.0.0/8", "::1"], "localhost", false],
  [["127.0.0.0/8"], "localhost", false],
  [["10.0.0.0/8"], "localhost", true],
  [[], "a.localhost.", true],
  [[], "localhost.example", false],
  [["::1"], "[::1]", false],
  [[], "[::1]", true],
  [[], "", false],
])("if %j is allowed, whether %j is known to be refused: %s", (allow, host, isRefused) => {
  const egress = createEgress({ allow, resolve: () => expect.unreachable("a name server was asked") });
  expect(egress.findHostRefusal(host) !== null).toBe(isRefused);
});

test("the last 1,000 refused names are known", async () => {
  const egress = createEgress({ allow: [], resolve: async () => ["10.0.0.1"] });
  const connector = egress.connector(10);
  for (let at = 0; at <= 1_000; at++) {
    const host = `n${at}.test`;
    await new Promise<void>((resolve) =>
      connector({ hostname: host, host, protocol: "http:", port: "1" }, () => resolve()),
    );
  }
  expect(["n0.test", "n1.test", "n1000.test"].map((host) => egress.findHostRefusal(host) !== null)).toEqual([
    false,
    true,
    true,
  ]);
});

describe("allowing", () => {
  test("a network includes its addresses, also mapped ones, and no others", () => {
    const egress = createEgress({ allow: ["10.0.0.0/8", " ::1 ", "fd00::/8", "192.168.1.7"] });
    const may = ["10.1.2.3", "::ffff:10.1.2.3", "::ffff:a01:203", "::1", "fd12::1", "192.168.1.7", "8.8.8.8"];
    const mayNot = [
      "11.0.0.1.",
      "127.0.0.1",
      "192.168.1.8",
      "::2",
      "fc00::1",
      "64:ff9b::10.1.2.3",
      "::10.1.2.3",
      "2002:a01:203::1",
    ];
    expect(may.filter((address) => !egress.mayCall(address))).toEqual([]);
    expect(mayNot.filter((address) => egress.mayCall(address))).toEqual([]);
  });

  test("all addresses of one family does not affect the other family", () => {
    const every6 = createEgress({ allow: ["::/0"] });
    expect(
      ["fe80::1%eth0", "::1", "10.0.0.1", "::ffff:10.0.0.1"].map((address) => every6.mayCall(address)),
    ).toEqual([true, true, false, false]);
    const every4 = createEgress({ allow: ["0.0.0.0/0"] });
    expect(
      ["255.255.255.255", "127.0.0.1", "::ffff:10.0.0.1", "::1"].map((address) => every4.mayCall(address)),
    ).toEqual([true, true, true, false]);
  });

  test.each([
    "",
    "localhost",
    "10.0.0.0/33",
    "10.0.0.0/",
    "10.0.0.0/-1",
    "10.0.0.0/8/8",
    "10.0.0/8",
    "::1/129",
    "fe80::1%eth0",
    "::ffff:10.0.0.0/104",
    "*",
    "10.0.0.0/8,::1",
  ])("%j is refused with advice", (entry) =>
    expect(() => createEgress({ allow: [entry] })).toThrow(/^".*" is not a network; /),
  );
});

describe("a connection", () => {
  /** Requests a page through the egress check. */
  async function call(url: string, allow: string[], resolve?: Resolve): Promise<number> {
    const egress = createEgress({ allow, ...(resolve ? { resolve } : {}) });
    return (await ask(createConnections({ connector: egress.connector(2_000), perOrigin: 1 }), url)).status;
  }

  async function counted(): Promise<{ port: number; calls(): number; hosts: string[] }> {
    const hosts: string[] = [];
    const port = await httpDestination((incoming, response) => {
      hosts.push(incoming.headers.host ?? "");
      response.setHeader("Connection", "close").end();
    });
    return { port, hosts, calls: () => hosts.length };
  }

  test.each([
    ["fec0::1%eth0", "allow it with WAYPOST_EGRESS_ALLOW=fec0::1"],
    ["::ffff:10.0.0.1", "allow it with WAYPOST_EGRESS_ALLOW=10.0.0.1"],
    ["fe80::1%eth0", "it is a link-local or metadata address, which is refused"],
    ["169.254.169.254", "it is a link-local or metadata address, which is refused"],
  ])(
    "to %s is refused, and the error has the value for the setting, or no advice",
    async (address, advice) => {
      const refused = call("http://localhost:1/", [], async () => [address]);
      await expect(refused).rejects.toMatchObject({
        message: `address ${address} of localhost is not public: ${advice}`,
      });
    },
  );

  test.each(["10.0.0.7", "fec0::1", "169.254.169.254"])(
    "to a name reveals nothing of its address: %s",
    async (address) => {
      const advice =
        "the operator of the server can look it up, and allow the name with " +
        "WAYPOST_EGRESS_ALLOW=db.internal; a loopback address needs its own entry";
      const refused = call("http://db.internal:1/", [], async () => [address]);
      await expect(refused).rejects.toMatchObject({
        message: `address of db.internal is not public: ${advice}`,
      });
    },
  );

  test("to a name uses the checked address, with the name as its host", async () => {
    const { port, hosts } = await counted();
    expect(await call(`http://shop.test:${port}/`, ["127.0.0.0/8"], async () => ["127.0.0.1"])).toBe(200);
    expect(hosts).toEqual([`shop.test:${port}`]);
  });

  test.each(["127.0.0.1", "2130706433", "0x7f.1", "017700000001", "[::ffff:127.0.0.1]"])(
    "to %s is refused before it is opened",
    async (host) => {
      const { port, calls } = await counted();
      await expect(call(`http://${host}:${port}/`, [])).rejects.toThrow(
        /^address \S+ is not public: allow it with WAYPOST_EGRESS_ALLOW=\S+$/,
      );
      expect(calls()).toBe(0);
    },
  );

  test("to the name of a private address is refused with both names and the setting", async () => {
    const { port, calls } = await counted();
    await expect(call(`http://localhost:${port}/`, [], async () => ["127.0.0.1"])).rejects.toThrow(
      "address 127.0.0.1 of localhost is not public: allow it with WAYPOST_EGRESS_ALLOW=127.0.0.1",
    );
    expect(calls()).toBe(0);
  });

  test("is refused if any of the addresses is private", async () => {
    const { port, calls } = await counted();
    for (const addresses of [
      ["8.8.8.8", "127.0.0.1"],
      ["127.0.0.1", "8.8.8.8"],
      ["2a00::1", "::ffff:127.0.0.1"],
      ["127.0.0.1", "garbage"],
    ]) {
      await expect(call(`http://shop.test:${port}/`, [], async () => addresses)).rejects.toThrow(
        "is not public",
      );
    }
    expect(calls()).toBe(0);
  });

  test("looks a name up once, so a different answer to a second lookup has no effect", async () => {
    const { port, calls } = await counted();
    const answers = [["127.0.0.2"], ["127.0.0.1"]];
    let asked = 0;
    // 127.0.0.2 represents the public address; the destination listens on 127.0.0.1 only.
    await expect(
      call(`http://shop.test:${port}/`, ["127.0.0.2"], async () => answers[asked++] ?? []),
    ).rejects.toThrow(/ECONNREFUSED/);
    expect(asked).toBe(1);
    expect(calls()).toBe(0);
  });

  test("is checked again for each new connection", async () => {
    const { port, calls } = await counted();
    const answers = [["127.0.0.1"], ["10.0.0.1"]];
    const egress = createEgress({ allow: ["127.0.0.1"], resolve: async () => answers.shift() ?? [] });
    const connections = createConnections({ connector: egress.connector(2_000), perOrigin: 1 });
    await ask(connections, `http://shop.test:${port}/`);
    await expect(ask(connections, `http://shop.test:${port}/`)).rejects.toThrow(
      "address of shop.test is not public",
    );
    expect(calls()).toBe(1);
  });

  test("to a name without an address, or to an unknown name, fails", async () => {
    await expect(call("http://shop.test/", [], async () => [])).rejects.toMatchObject({ code: "ENOTFOUND" });
    const unknown = Object.assign(new Error("no such name"), { code: "ENOTFOUND" });
    await expect(call("http://shop.test/", [], () => Promise.reject(unknown))).rejects.toBe(unknown);
  });

  test("shares a lookup that is running", async () => {
    const { port } = await counted();
    let asked = 0;
    let answer: (addresses: string[]) => void = () => {};
    const resolve: Resolve = () => new Promise((resolveWith) => ((answer = resolveWith), asked++));
    const egress = createEgress({ allow: ["127.0.0.1"], resolve });
    const connections = createConnections({ connector: egress.connector(2_000), perOrigin: 3 });
    const calls = [1, 2, 3].map(() => ask(connections, `http://shop.test:${port}/`));
    await new Promise((resolveSoon) => setImmediate(resolveSoon));
    answer(["127.0.0.1"]);
    expect((await Promise.all(calls)).map(({ status }) => status)).toEqual([200, 200, 200]);
    expect(asked).toBe(1);
  });
});
