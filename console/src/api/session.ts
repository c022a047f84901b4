import { createContext, use } from "react";
import { request } from "./client.ts";

/** The session, as the server reports it. `account` is null before a login, and for an operator. */
export type Session = {
  account: { id: string; name: string } | null;
  rights: "all" | "read" | readonly string[] | null;
  name: string;
  openedWith: "password" | "main" | "readOnly" | "token" | "operator" | null;
  expiresAt: number | null;
  operator: boolean;
  hasOperator: boolean;
  /** The version of the server. Null before a login. */
  version: string | null;
};

/** A login: one of these. */
export type Login =
  | { account: string; password: string; name?: string }
  | { token: string; name?: string }
  | { operatorPassword: string; name?: string }
  | { code: string }
  | { switchTo: string };

const path = "/console/session";

const readCode = (): string | undefined => /^#code=([\w-]+)$/.exec(location.hash)?.[1];

/** Reports whether the address has a code that opens a session. */
export const hasCode = (): boolean => readCode() !== undefined;

/** Returns the present session. A code in the address is used up first. */
export async function readSession(): Promise<Session> {
  const code = readCode();
  if (code !== undefined) {
    history.replaceState(null, "", location.pathname + location.search);
    try {
      return (await request("POST", path, { body: { code } })) as Session;
    } catch {
      // The code was used already. There may be a session.
    }
  }
  return (await request("GET", path)) as Session;
}

/** Opens a session. Throws `Trouble`. */
export const logIn = async (given: Login): Promise<Session> =>
  (await request("POST", path, { body: given })) as Session;

/** Ends the session. */
export const logOut = async (): Promise<Session> => (await request("DELETE", path)) as Session;

/** The credentials of an account after they were replaced. */
export type NewCredentials = Record<"account" | "password" | "token" | "readOnlyToken", string>;

/** The session that the pages are shown for, and how to replace it. */
export type SessionState = {
  session: Session;
  setSession(session: Session): void;
  /** Shows new credentials instead of the pages, until the person dismisses them. The session has ended. */
  showCredentials(of: NewCredentials): void;
};

export const SessionContext = createContext<SessionState | null>(null);

/** Returns the session of the page. */
export function useSession(): SessionState {
  const state = use(SessionContext);
  if (!state) throw new Error("there is no session");
  return state;
}

/** The rights of a session. A button for anything else is not shown. */
export type May = { manage: boolean; publish: boolean; read: boolean; password: boolean; operate: boolean };

/** Returns what the session may do. The server decides the same. */
export function useMay(): May {
  const { session } = useSession();
  const { rights } = session;
  const has = (verb: string): boolean => rights === "all" || (Array.isArray(rights) && rights.includes(verb));
  return {
    manage: has("manage"),
    publish: has("publish"),
    read: rights === "read" || has("read"),
    password: session.openedWith === "password" || session.openedWith === "operator",
    operate: session.operator,
  };
}
