import type { Actor } from "../../core/model/auditEntry.ts";
import { storeFor } from "../../store/audited.ts";
import type { Incoming, Parts, Route } from "./route.ts";
import { changesAnything } from "./route.ts";

/** Whether the audit log keeps what a route does. */
export const isAudited = (row: Pick<Route, "changes" | "method" | "unaudited">): boolean =>
  changesAnything(row) && row.unaudited === undefined;

/** What a route works with, in the name of whoever asks: what is changed through it is kept in the audit log. */
export const inNameOf = (row: Pick<Route, "access">, incoming: Incoming, parts: Parts): Parts => ({
  ...parts,
  store: storeFor(parts.store, actorOf(row, incoming)),
});

/** Who asks, by what he has proved. */
export function actorOf({ access }: Pick<Route, "access">, { proof, callerIp: address }: Incoming): Actor {
  if (access === "operator") return { kind: "operator", address };
  if (access === "account") return { kind: "password", ...(proof && { name: proof.account.name }), address };
  return { kind: "token", token: typeof proof?.right === "object" ? proof.right.id : "main", address };
}
