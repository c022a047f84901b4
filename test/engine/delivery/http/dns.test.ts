import { createSocket } from "node:dgram";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import type { Resolve } from "../../../../src/engine/delivery/http/dns.ts";
import {
  createResolver,
  createServerLookup,
  parseHostsFile,
  createHostsCheck,
  parseSearchList,
  listCandidates,
} from "../../../../src/engine/delivery/http/dns.ts";

/** Returns the question of a packet: the name, and 1 for IPv4 or 28 for IPv6. */
function questionOf(packet: Buffer): { name: string; type: number; end: number } {
  const labels: string[] = [];
  let at = 12;
  for (let length = packet[at] ?? 0; length > 0; length = packet[at] ?? 0) {
    labels.push(packet.toString("latin1", at + 1, at + 1 + length));
    at += 1 + length;
  }
  return { name: labels.join("."), type: packet.readUInt16BE(at + 1), end: at + 5 };
}

type NameServer = { address: string; asked: string[] };

/**
 * Starts a name server. It never answers names that begin with "silent", and answers names that begin with
 * "flaky" only once per type. Names that begin with "known" or "flaky" have the address 192.0.2.1. Other
 * names do not exist.
 */
async function nameServer(): Promise<NameServer> {
  const socket = createSocket("udp4");
  onTestFinished(() => void socket.close());
  const asked: string[] = [];
  socket.on("message", (packet, { port, address }) => {
    const { name, type, end } = questionOf(packet);
    const isAgain = asked.includes(`${name} ${type}`);
    asked.push(`${name} ${type}`);
    if (name.startsWith("silent") || (name.startsWith("flaky") && isAgain)) return;
    const isKnown = /^(known|flaky)/.test(name);
    const record = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]);
    const answer = Buffer.concat([packet.subarray(0, end), ...(isKnown && type === 1 ? [record] : [])]);
    answer.writeUInt16BE(isKnown ? 0x8180 : 0x8183, 2);
    answer.writeUInt16BE(isKnown && type === 1 ? 1 : 0, 6);
    answer.writeUInt16BE(0, 10);
    socket.send(answer, port, address);
  });
  socket.bind(0, "127.0.0.1");
  await once(socket, "listening");
  return { address: `127.0.0.1:${socket.address().port}`, asked };
}

/** Writes a resolv.conf and a hosts file. */
async function files({ resolv = "", hosts = "" }): Promise<{ resolv: string; hosts: string }> {
  const folder = await mkdtemp(join(tmpdir(), "waypost-names-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const paths = { resolv: join(folder, "resolv.conf"), hosts: join(folder, "hosts") };
  await Promise.all([writeFile(paths.resolv, resolv), writeFile(paths.hosts, hosts)]);
  return paths;
}

const noNames = async (): Promise<boolean> => false;

/** A system lookup that ends when the test answers it. */
function held(): { lookUp: Resolve; looking: Map<string, (addresses: string[]) => void> } {
  const looking = new Map<string, (addresses: string[]) => void>();
  return { looking, lookUp: (hostname) => new Promise((resolve) => void looking.set(hostname, resolve)) };
}

test("name servers return the addresses of a name, or none if it is unknown or they are silent", async () => {
  const { resolv } = await files({});
  const ask = createServerLookup([(await nameServer()).address], resolv);
  expect(
    await Promise.all(["known.example", "other.example", "silent.example"].map((name) => ask(name))),
  ).toEqual([["192.0.2.1"], [], []]);
});

test("a name whose server answers once and is then silent blocks no thread", async () => {
  const { resolv } = await files({});
  const server = await nameServer();
  const { lookUp, looking } = held();
  const resolve = createResolver({
    lookUp,
    queryServers: createServerLookup([server.address], resolv),
    isInHostsFile: noNames,
  });
  const names = Array.from({ length: 20 }, (_, n) => `flaky${n}.example`);
  expect(await Promise.all(names.map((name) => resolve(name, "hostile")))).toEqual(
    names.map(() => ["192.0.2.1"]),
  );
  expect(looking.size).toBe(0);
  expect(server.asked.toSorted()).toEqual(names.flatMap((name) => [`${name} 1`, `${name} 28`]).toSorted());
});

test(
  "names of silent servers block one thread, regardless of their number, and delay no others",
  { tags: "long" },
  async () => {
    const { lookUp, looking } = held();
    const { resolv, hosts } = await files({ hosts: "10.0.0.1 printer # the old one\n" });
    const ask = createServerLookup([(await nameServer()).address], resolv);
    const resolve = createResolver({ lookUp, queryServers: ask, isInHostsFile: createHostsCheck(hosts) });
    const silent = Array.from({ length: 20 }, (_, n) => resolve(`silent${n}.example`));
    const others = ["printer", "localhost", "silent.localhost"].map((name) => resolve(name));
    expect(await resolve("known.example")).toEqual(["192.0.2.1"]);
    await expect.poll(() => looking.size).toBe(4);
    for (const [name, answer] of looking) answer([name]);
    expect((await Promise.all(others)).flat()).toEqual(["printer", "localhost", "silent.localhost"]);
    // One after the other, in the order of the requests.
    for (let answered = 1; answered < silent.length; answered++) {
      await expect.poll(() => looking.size).toBe(4 + answered);
      const [last, answer] = [...looking].at(-1) ?? [];
      answer?.([last ?? ""]);
    }
    expect((await Promise.all(silent)).flat().length).toBe(20);
  },
);

test("names for the system lookup are looked up by account in turns, and each name once", async () => {
  const order: string[] = [];
  const answers: ((addresses: string[]) => void)[] = [];
  const lookUp: Resolve = (hostname) =>
    new Promise((resolve) => void (order.push(hostname), answers.push(resolve)));
  const resolve = createResolver({ lookUp, queryServers: async () => [], isInHostsFile: noNames });
  const hostile = Array.from({ length: 5 }, (_, n) => resolve(`h${n}`, "hostile"));
  await expect.poll(() => order.length).toBe(1);
  const [one, two, shared] = ["v0", "v1", "h4"].map((name) => resolve(name, "victim"));
  for (let n = 0; n < 7; n++) {
    await expect.poll(() => answers.length).toBe(n + 1);
    answers[n]?.([`192.0.2.${n}`]);
  }
  expect(order).toEqual(["h0", "h1", "v0", "h2", "v1", "h3", "h4"]);
  expect(await Promise.all([one, two, shared, hostile[4]])).toEqual([
    ["192.0.2.2"],
    ["192.0.2.4"],
    ["192.0.2.6"],
    ["192.0.2.6"],
  ]);
});

test("a name that is not found fails for all that wait for it; the next ones are looked up", async () => {
  const lookUp: Resolve = async (hostname) =>
    hostname === "none" ? Promise.reject(new Error("ENOTFOUND")) : ["192.0.2.9"];
  const resolve = createResolver({ lookUp, queryServers: async () => [], isInHostsFile: noNames });
  const none = resolve("none", "a");
  const some = resolve("some", "b");
  await expect(none).rejects.toThrow("ENOTFOUND");
  expect(await some).toEqual(["192.0.2.9"]);
});

test("a short name is completed as the system does, and a changed file is read again", async () => {
  const { resolv } = await files({
    resolv: "search cluster.local corp.example\noptions timeout:2 ndots:2\n",
  });
  const server = await nameServer();
  const ask = createServerLookup([server.address], resolv);
  expect(await ask("known.dev")).toEqual(["192.0.2.1"]);
  expect(server.asked.toSorted()).toEqual(["known.dev.cluster.local 1", "known.dev.cluster.local 28"]);
  await writeFile(resolv, "nameserver 192.0.2.53\n");
  expect(await ask("known.dev")).toEqual(["192.0.2.1"]);
  expect(server.asked).toContain("known.dev 1");
});

test.each([
  { text: "", search: { domains: [], dots: 1 } },
  {
    text: "domain a.example\nsearch b.example c.example\n",
    search: { domains: ["b.example", "c.example"], dots: 1 },
  },
  { text: "search .\noptions edns0 ndots:5", search: { domains: [], dots: 5 } },
  { text: "options ndots:99", search: { domains: [], dots: 15 } },
])("the search list of $text", ({ text, search }) => {
  expect(parseSearchList(text)).toEqual(search);
});

test("candidates of a name come in the order of the system", () => {
  const search = { domains: ["svc.local", "local"], dots: 2 };
  expect(listCandidates("api.dev", search)).toEqual(["api.dev.svc.local", "api.dev.local", "api.dev"]);
  expect(listCandidates("a.b.example", search)).toEqual([
    "a.b.example",
    "a.b.example.svc.local",
    "a.b.example.local",
  ]);
  expect(listCandidates("api.", search)).toEqual(["api."]);
});

test("the names of a hosts file", () => {
  expect([...parseHostsFile("# none\n127.0.0.1\tLocalhost  Me # not me\n\n::1 six\n")]).toEqual([
    "localhost",
    "me",
    "six",
  ]);
});
