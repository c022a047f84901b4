import type { Alert } from "../../../src/operations/alerts/alert.ts";
import type { Millis } from "../../../src/engine/core/values/basics.ts";
import type { RandomCommand } from "./randomCommands.ts";
import { bytes } from "./storeFixture.ts";

/** Returns commands about a source, and about tokens and secrets. */
export function makeSourceCommands(
  named: { account: string; id: string },
  { random, isRare }: { random(): number; isRare(): boolean },
): RandomCommand[] {
  const integerBelow = (count: number): number => Math.floor(random() * count);
  const { account } = named;
  const setUp = {
    name: "n",
    destination: "https://one.example/",
    headers: [],
    verification: null,
    deduplicate: false,
    paused: false,
  };
  const call = {
    others: 0,
    reason: "unsigned",
    method: "POST",
    size: 9,
    body: bytes("no\0"),
    headers: [["X", "y"]] as const,
    callerIp: null,
  };
  return [
    { name: "createSource", input: { account, ...setUp, secretHash: `secret ${random()}` } },
    { name: "changeSource", input: { ...named, change: { paused: isRare() } } },
    { name: "keepRejection", input: { ...named, ...call } },
    { name: "keepRejection", input: { ...named, ...call } },
    { name: "noteAcceptance", input: named },
    { name: "deleteSource", input: named },
    {
      name: "createToken",
      input: {
        account,
        hash: `token ${random()}`,
        scope: null,
        name: "",
        verbs: ["publish"],
        expiresAt: null,
        destinations: [[], ["https://one.example/*"], ["nowhere"]][integerBelow(3)] ?? [],
      },
    },
    { name: "rewrite", input: { accounts: [account], sources: [[account, named.id]], settings: [] } },
    {
      name: "takeBurst",
      input: { account, needed: 1 + integerBelow(3), wanted: integerBelow(9) },
    },
  ];
}

/** Returns commands about alerts. Many alerts exist; some are being sent, and some belong to another hour. */
export function makeAlertCommands(
  { account, now, alerts }: { account: string; now: Millis; alerts: readonly Alert[] },
  pickOne: <T>(list: readonly T[]) => T,
): RandomCommand[] {
  const url = "https://ops.example/hook";
  const known = alerts.length === 0 ? null : pickOne(alerts);
  const named = { account: known?.account ?? account, id: known?.id ?? "none" };
  const attempt = (known?.attempts ?? 0) + pickOne([0, 0, 1]);
  const makeNotes = (): RandomCommand => ({
    name: "noteAlerts",
    input: {
      account: pickOne(["a", "b", ""]),
      now: now - pickOne([0, 0, 3_600_000]),
      notices: ["one", "two"].map((subject) => ({ event: "host.failing", subject, text: "It fails." })),
      dropped: pickOne([[], ["one"], ["one", pickOne(["two", "three"])]]),
    },
  });
  const on = { url, after: 300_000, events: ["host.failing"] } as const;
  const onServer = { url, events: ["disk.low"], secret: "whsec_s" } as const;
  return [
    { name: "setAlerts", input: { account, alerts: pickOne([on, on, { ...on, secret: "whsec_s" }, null]) } },
    { name: "setServerAlerts", input: { alerts: pickOne([onServer, onServer, null]) } },
    makeNotes(),
    { name: "takeAlert", input: named },
    {
      name: "noteAlertOutcome",
      input: { ...named, attempt, status: pickOne([200, 500, null]), error: null },
    },
    makeNotes(),
    {
      name: "removeAlerts",
      input: { account: named.account, ids: [named.id], reason: pickOne(["age", "request"] as const) },
    },
  ];
}
