import { createSocket } from "node:dgram";
import { once } from "node:events";
import { expect, onTestFinished, test } from "vitest";
import type { Resolve } from "../../src/engine/names.ts";
import { apartFromSilent, askingServers } from "../../src/engine/names.ts";

/** A name server: that of names which begin with "silent" never answers, any other says that there is no such name. */
async function nameServer(): Promise<string> {
  const socket = createSocket("udp4");
  onTestFinished(() => void socket.close());
  socket.on("message", (asked, { port, address }) => {
    if (asked.includes("silent")) return;
    const answer = Buffer.from(asked);
    answer.writeUInt16BE(0x8183, 2);
    socket.send(answer, port, address);
  });
  socket.bind(0, "127.0.0.1");
  await once(socket, "listening");
  return `127.0.0.1:${socket.address().port}`;
}

test("servers that say that there is no such name answer, and silent ones do not", async () => {
  const areAnswering = askingServers([await nameServer()]);
  expect(await Promise.all(["known.example", "silent.example"].map(areAnswering))).toEqual([true, false]);
});

test("names of silent servers hold one thread, however many they are, and no others wait for them", async () => {
  const looking = new Map<string, (addresses: string[]) => void>();
  const lookUp: Resolve = (hostname) => new Promise((resolve) => void looking.set(hostname, resolve));
  const resolve = apartFromSilent({ lookUp, areAnswering: askingServers([await nameServer()]) });
  const silent = Array.from({ length: 20 }, (_, n) => resolve(`silent${n}.example`));
  const others = ["fast.example", "localhost", "silent.localhost"].map(resolve);
  await expect.poll(() => looking.size, { timeout: 10_000 }).toBe(4);
  for (const [name, answer] of looking) answer([name]);
  expect((await Promise.all(others)).flat()).toEqual(["fast.example", "localhost", "silent.localhost"]);
  // Each after the one before, in the order in which it became known of them.
  for (let answered = 1; answered < silent.length; answered++) {
    await expect.poll(() => looking.size).toBe(4 + answered);
    const [last, answer] = [...looking].at(-1) ?? [];
    answer?.([last ?? ""]);
  }
  expect((await Promise.all(silent)).flat().length).toBe(20);
});
