import type { Store } from "../../engine/store/store.ts";
import { bulkWorkTime, makeBulkEnd } from "../http/answerTime.ts";

/**
 * Returns the store for a bulk action. Once `isOver` returns true, it throws `Refusal` for each read and each
 * command, so that the loop of the action ends at its next part.
 */
export function withEnd(store: Store, isOver: () => boolean): Store {
  const checkTime = (): void => {
    if (isOver()) throw makeBulkEnd(`the bulk action was stopped after ${bulkWorkTime / 1_000} s`);
  };
  return {
    ...store,
    read: new Proxy(store.read, {
      get: (read, name, receiver): unknown => {
        checkTime();
        return Reflect.get(read, name, receiver);
      },
    }),
    execute: async (name, input, options) => {
      checkTime();
      return store.execute(name, input, options);
    },
  };
}
