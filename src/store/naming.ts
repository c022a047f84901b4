import type { By } from "../core/audit.ts";
import type { Actor } from "../core/auditEntry.ts";
import type { Store } from "./store.ts";

/** The same store for one who asks: the audit log names him with whatever is changed through it. */
export function storeFor(store: Store, by: Actor): Store {
  return {
    ...store,
    execute: (name, input, haste) => {
      const named: object & By = { ...(input as object), by };
      return store.execute(name, named as typeof input, haste);
    },
  };
}
