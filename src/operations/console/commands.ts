import { requireAccount } from "../../engine/core/accounts/plans.ts";
import type { Decision } from "../../engine/core/decision/command.ts";
import type { ConsoleSession, SessionCredential } from "../../engine/core/model/consoleSession.ts";
import { maxSessions, sessionSpan } from "../../engine/core/model/consoleSession.ts";
import type { AccountId } from "../../engine/core/values/basics.ts";
import { Refusal } from "../../engine/core/values/errors.ts";

/**
 * Opens a session of the web console and removes the expired ones. `tokenHash` is the hash of the main token
 * when the credential was checked: if the token was replaced since, the credential is no longer valid. Throws
 * `Refusal`. A disabled account may open sessions, which can only read.
 */
export const openSession: Decision<
  { account: AccountId; tokenHash: string } & Pick<ConsoleSession, "hash" | "name" | "credential">,
  ConsoleSession
> = {
  decide: ({ account: id, tokenHash, ...opened }, draft, { now }) => {
    const account = requireAccount(draft.get("accounts", id));
    if (account.deletedAt !== undefined || account.tokenHash !== tokenHash)
      throw new Refusal("unauthorized", "account: its credentials were just replaced; use the new ones");
    const session: ConsoleSession = { ...opened, openedAt: now, expiresAt: now + sessionSpan };
    const open = (account.sessions ?? []).filter(({ expiresAt }) => expiresAt > now);
    draft.put("accounts", { ...account, sessions: [...makeRoom(open, session), session] });
    return session;
  },
};

/**
 * Returns the open sessions without the one that a new session ends, if there are too many. The new session
 * ends the oldest of the same credential, so that its holder cannot log out everyone else. If there is none,
 * it ends the oldest.
 */
function makeRoom(open: readonly ConsoleSession[], { credential }: ConsoleSession): ConsoleSession[] {
  if (open.length < maxSessions) return [...open];
  const name = formatCredential(credential);
  const own = open.findIndex((one) => formatCredential(one.credential) === name);
  return open.toSpliced(Math.max(0, own), 1);
}

const formatCredential = (credential: SessionCredential): string =>
  credential.kind === "token" ? credential.id : credential.kind;

/** Ends a session at once, on every node. */
export const closeSession: Decision<{ account: AccountId; hash: string }, { closed: boolean }> = {
  decide: ({ account: id, hash }, draft) => {
    const account = draft.get("accounts", id);
    const closed = account?.sessions?.some((session) => session.hash === hash) ?? false;
    if (account && closed)
      draft.put("accounts", {
        ...account,
        sessions: (account.sessions ?? []).filter((session) => session.hash !== hash),
      });
    return { closed };
  },
};
