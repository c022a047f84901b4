import { expect, test } from "vitest";
import type { Delivery } from "../../src/core/message.ts";
import type { HistoryNeed } from "../../src/store/loader.ts";
import { composed } from "../../src/store/compose.ts";
import { Broker, bytes, letterOf } from "../core/broker.ts";

const endpoint = "https://app.example/order";
const features = { lazyFetch: true, initialBody: true, detect: false, captured: true };
const plan = (targetStep: number) => ({ stepId: 0, stepName: "s", stepType: "Run", concurrent: 3, targetStep });

test("the history of a run is read once for all messages that carry it, each up to its own place", async () => {
  const broker = await Broker.open();
  const start = letterOf({ url: endpoint, post: { kind: "start", runId: "wfr_1", url: endpoint, features, origin: "sdk", invoker: null } });
  const plans = [1, 2, 3].map((target) =>
    letterOf({ url: endpoint, body: bytes(JSON.stringify(plan(target))), post: { kind: "step", runId: "wfr_1", head: plan(target) } }),
  );
  await broker.run("publish", { account: "acme", letters: [start, ...plans] });
  const { deliveries } = broker;
  expect(deliveries.map(({ message }) => JSON.parse(new TextDecoder().decode(message.body)).length)).toEqual([1, 2, 3, 4]);

  const asked: HistoryNeed[] = [];
  const steps = [...broker.memory.tables.steps.values()].sort((a, b) => a.position - b.position);
  const loader = {
    rows: () => Promise.resolve([]),
    histories: (of: readonly HistoryNeed[]) => (asked.push(...of), Promise.resolve([steps])),
  };
  const again = await composed(loader, { replies: [], deliveries: [...deliveries], dueAt: null, faults: [], calledOff: [] });
  expect(asked).toMatchObject([{ account: "acme", upTo: 3 }]);
  expect(again.deliveries.map(({ message }: Delivery) => message.body)).toEqual(deliveries.map(({ message }) => message.body));
});
