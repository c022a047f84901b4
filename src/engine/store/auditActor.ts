import type { ActorInput } from "../core/commands/audit.ts";
import type { Actor } from "../core/model/auditEntry.ts";
import type { Store } from "./store.ts";

const underlyingStores = new WeakMap<Store, Store>();

/**
 * Returns the store that an audited store wraps, or the store itself. State that belongs to a store is kept
 * under this key, so that it exists once.
 */
export const getUnderlying = (store: Store): Store => underlyingStores.get(store) ?? store;

/** Returns a store whose changes name this actor in the audit log. */
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
