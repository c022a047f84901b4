import type { Delivery } from "../../../../src/engine/core/model/delivery.ts";
import { freshDatabase } from "../../../postgres.ts";
import { openNode } from "./postgresDatabase.ts";
import { closeAfterTest, StoreFixture, TestClock } from "../storeFixture.ts";

/** Opens several nodes on an empty database at the same time, and creates the account `acc`. */
export async function openNodes(
  count = 2,
): Promise<{ url: string; clock: TestClock; worlds: [StoreFixture, StoreFixture, ...StoreFixture[]] }> {
  const url = await freshDatabase();
  const clock = new TestClock();
  const names = Array.from({ length: count }, (_, index) => `nod_${index}`);
  // The nodes start at the same time too. If there are no tables, one of them creates these.
  const worlds = await Promise.all(
    names.map(
      async (node, index) =>
        new StoreFixture(closeAfterTest(await openNode(url, clock, { node, seed: index + 1 })), clock, node),
    ),
  );
  const [a, b, ...others] = worlds;
  if (!a || !b) throw new Error("two at least");
  await a.account();
  return { url, clock, worlds: [a, b, ...others] };
}

/** Returns the ids of the delivered messages. */
export const idsOf = (deliveries: readonly Delivery[]): string[] =>
  deliveries.map(({ message }) => message.id);
