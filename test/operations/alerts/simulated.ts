import type { Alert } from "../../../src/operations/alerts/alert.ts";
import type { Millis } from "../../../src/engine/core/values/basics.ts";
import type { RandomCommand } from "../../engine/store/randomCommands.ts";

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
