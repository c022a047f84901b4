import { expect, test } from "vitest";
import type { Delivery, RunPart } from "../../src/core/message.ts";
import type { Step } from "../../src/core/run.ts";
import { composed } from "../../src/store/compose.ts";
import type { HistoryNeed } from "../../src/store/loader.ts";
import { Broker, bytes } from "../core/broker.ts";

const url = "https://app.example/order";
const stepAt = (run: string, position: number): Step => ({
  ...{ account: "acme", id: `${run}/x${position}`, run, position, messageId: `msg_${position}`, callType: "step", createdAt: 0 },
  ...{ head: null, url, headers: [], body: bytes(`${run} ${position}`) },
});
const textsIn = ({ message: { body } }: Delivery): string[] =>
  (JSON.parse(new TextDecoder().decode(body)) as { body: string }[]).map((entry) => atob(entry.body));

test("the history of a run is read once, as far as any of its messages needs it", async () => {
  const broker = await Broker.open();
  await broker.publish({ url });
  const [plain] = broker.deliveries;
  if (!plain) throw new Error("nothing was sent");
  const carrying = (run: string, position: number): Delivery => {
    const part: RunPart = { run, runId: run, createdAt: 0, kind: "step", slot: `x${position}`, position, size: 1 };
    return { ...plain, message: { ...plain.message, run: part } };
  };
  const asked: HistoryNeed[] = [];
  const loader = {
    rows: async () => [],
    histories: async (of: readonly HistoryNeed[]) => {
      asked.push(...of);
      return of.map(({ run, upTo }) => Array.from({ length: upTo + 1 }, (_, position) => stepAt(run, position)));
    },
  };
  const deliveries = [carrying("a", 1), carrying("a", 2), carrying("b", 0), carrying("a", 0)];
  const result = await composed(loader, { replies: [], deliveries, dueAt: null, faults: [] });
  expect(result.deliveries.map(textsIn)).toEqual([["a 0", "a 1"], ["a 0", "a 1", "a 2"], ["b 0"], ["a 0"]]);
  expect(asked).toEqual([
    { account: "acme", run: "a", upTo: 2 },
    { account: "acme", run: "b", upTo: 0 },
  ]);
});
