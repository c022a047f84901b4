import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { compareVerification } from "../../src/client/applyVerification.ts";
import { developmentToken, startWaypost, temporaryFolder } from "../server/waypost.ts";
import { commandsFor } from "./startCommand.ts";

/** A server, and a function that applies a file to it. */
async function start() {
  const { url } = await startWaypost(["dev", "--port", "0"]);
  const file = join(temporaryFolder(), "waypost.yaml");
  const run = commandsFor(url);
  const done = async (text: string): Promise<string> => {
    writeFileSync(file, text);
    const ended = await run("apply", file);
    expect(ended).toMatchObject({ code: 0, err: "" });
    return ended.out;
  };
  const listSources = async (): Promise<unknown> => {
    const headers = { authorization: `Bearer ${developmentToken}` };
    return (await fetch(`${url}/v2/sources`, { headers })).json();
  };
  return { done, listSources };
}

const shown = {
  ...{ scheme: "hmac", secrets: 1, header: "X-Sign", algorithm: "sha256", encoding: "hex", prefix: "" },
  signed: "{body}",
};
const given = { scheme: "hmac", secret: "hidden", header: "X-Sign" };
const timestamp = { header: "X-Time", unit: "seconds", toleranceSeconds: 300 };

test.each<[unknown, unknown, readonly [field: string, before: string | null, after: string | null][]]>([
  [given, shown, []],
  [{ ...given, secret: "another" }, shown, []],
  [{ ...given, secret: ["one"], algorithm: "sha256", prefix: "" }, shown, []],
  [{ ...given, secret: ["one", "two"] }, shown, [["secrets", "1", "2"]]],
  [{ ...given, header: "X-Other" }, shown, [["header", "X-Sign", "X-Other"]]],
  [{ ...given, prefix: "v1=" }, shown, [["prefix", "", "v1="]]],
  [given, { ...shown, prefix: "v1=" }, [["prefix", "v1=", ""]]],
  [{ ...given, eventIdHeader: "X-Id" }, shown, [["eventIdHeader", null, "X-Id"]]],
  [given, { ...shown, eventIdHeader: "X-Id" }, [["eventIdHeader", "X-Id", null]]],
  [{ ...given, timestamp: { header: "X-Time" } }, { ...shown, timestamp }, []],
  [
    { ...given, timestamp: { header: "X-Time", toleranceSeconds: 60 } },
    { ...shown, timestamp },
    [["timestamp.toleranceSeconds", "300", "60"]],
  ],
  [given, { ...shown, timestamp: { header: "X-Time" } }, [["timestamp.header", "X-Time", null]]],
  [
    { ...given, handshake: { kind: "hub", verifyToken: "hidden" } },
    { ...shown, handshake: { kind: "hub" } },
    [],
  ],
  [
    { ...given, handshake: { kind: "echo", parameter: "b" } },
    { ...shown, handshake: { kind: "echo", parameter: "a" } },
    [["handshake.parameter", "a", "b"]],
  ],
  [{ scheme: "github", secret: "hidden" }, { scheme: "github", secrets: 1 }, []],
  [
    { scheme: "github", secret: "hidden" },
    { scheme: "stripe", secrets: 2 },
    [
      ["scheme", "stripe", "github"],
      ["secrets", "2", "1"],
    ],
  ],
  // A server of an earlier version shows only these two.
  [{ ...given, prefix: "v1=" }, { scheme: "hmac", secrets: 1 }, []],
  [{ ...given, prefix: "v1=" }, { scheme: "hmac", secrets: 2 }, [["secrets", "2", "1"]]],
])("the verification %j of a file differs from %j in %j", (file, server, differences) => {
  const found = compareVerification(file, server);
  expect(found).toEqual(
    differences.map(([field, before, after]) => ({ field: `verification.${field}`, before, after })),
  );
  expect(JSON.stringify(found)).not.toContain("hidden");
});

test("a verification that a source loses, gets, or does not have is one difference, or none", () => {
  const field = "verification";
  expect(compareVerification(null, shown)).toEqual([{ field, before: "hmac", after: null }]);
  expect(compareVerification(given, null)).toEqual([{ field, before: null, after: "hmac" }]);
  expect(compareVerification(given, undefined)).toEqual([{ field, before: null, after: "hmac" }]);
  expect(compareVerification(null, null)).toEqual([]);
});

test("waypost apply changes how a source verifies calls, once", async () => {
  const { done, listSources } = await start();
  const file = (tolerance: number): string =>
    `sources: {hook: {destination: 'https://example.com', urlFile: u, verification: {scheme: hmac,
      secret: hidden, header: X-Sign, signed: '{timestamp}{body}',
      timestamp: {header: X-Time, toleranceSeconds: ${tolerance}},
      handshake: {kind: hub, verifyToken: hidden}}}}`;
  expect(await done(file(60))).toContain("create sources.hook\n");
  expect(await done(file(60))).toBe("0 changes made; 1 unchanged\n");
  expect(await done(file(90))).toBe(
    "change sources.hook\n  verification.timestamp.toleranceSeconds: 60 -> 90\n" +
      "1 change made; 0 unchanged\n",
  );
  expect(await done(file(90))).toBe("0 changes made; 1 unchanged\n");
  expect(await listSources()).toMatchObject({
    sources: [{ verification: { timestamp: { toleranceSeconds: 90 }, handshake: { kind: "hub" } } }],
  });
});
