import type { Decision, Key } from "../decision/command.ts";
import type { AccountId } from "../values/basics.ts";

/**
 * Writes rows again unchanged, so that they are stored in the current format. Rows that do not exist are
 * skipped.
 */
export const rewrite: Decision<
  { accounts: readonly AccountId[]; sources: readonly Key[]; settings: readonly string[] },
  { rewritten: number }
> = {
  decide: ({ accounts, sources, settings }, draft) => {
    let rewritten = 0;
    for (const id of accounts) {
      const account = draft.get("accounts", id);
      if (account) draft.put("accounts", { ...account });
      if (account) rewritten++;
    }
    for (const key of sources) {
      const source = draft.get("sources", ...key);
      if (source) draft.put("sources", { ...source });
      if (source) rewritten++;
    }
    for (const id of settings) {
      const setting = draft.get("serverSettings", id);
      if (setting) draft.put("serverSettings", { ...setting });
      if (setting) rewritten++;
    }
    return { rewritten };
  },
};
