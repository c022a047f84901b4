import type { RandomCommand } from "../../engine/store/randomCommands.ts";

/** Returns commands about an outbox. */
export function makeOutboxCommands({ account, now }: { account: string; now: number }): RandomCommand[] {
  const name = "shop";
  const setting = {
    ...{ name, url: "postgres://relay:password@db.example/shop", schema: "waypost", isPooled: false },
    ...{ tokenHash: "hash", tokenId: null, owner: "own_1", createdAt: now },
  };
  return [
    { name: "setOutbox", input: { account, ...setting } },
    { name: "takeOutbox", input: { account, name, isAlone: false } },
  ];
}
