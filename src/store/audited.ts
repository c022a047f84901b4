import type { By } from "../core/commands/audit.ts";
import type { Actor } from "../core/model/auditEntry.ts";
import type { Store } from "./store.ts";

const named = new WeakMap<Store, Store>();

/** The store itself, whoever asks: what is remembered of it is remembered once for all. */
export const underlying = (store: Store): Store => named.get(store) ?? store;

/** The same store for one who asks: the audit log names him with whatever is changed through it. */
export function storeFor(store: Store, by: Actor): Store {
  const forOne: Store = {
    ...store,
    execute: (name, input, haste) => {
      const signed: object & By = { ...(input as object), by };
      return store.execute(name, signed as typeof input, haste);
    },
  };
  named.set(forOne, underlying(store));
  return forOne;
}
