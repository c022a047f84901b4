import type { ActorInput } from "../core/commands/audit.ts";
import type { Actor } from "../core/model/auditEntry.ts";
import type { Store } from "./store.ts";

const underlyingStores = new WeakMap<Store, Store>();

/** The store itself, whoever asks: what is remembered of it is remembered once for all. */
export const getUnderlying = (store: Store): Store => underlyingStores.get(store) ?? store;

/** The same store for one who asks: the audit log names him with whatever is changed through it. */
export function withAuditActor(store: Store, by: Actor): Store {
  const audited: Store = {
    ...store,
    execute: (name, input, options) => {
      const withActorInput: object & ActorInput = { ...(input as object), by };
      return store.execute(name, withActorInput as typeof input, options);
    },
  };
  underlyingStores.set(audited, getUnderlying(store));
  return audited;
}
