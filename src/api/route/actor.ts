import type { Actor } from "../../core/model/auditEntry.ts";
import { withAuditActor } from "../../store/auditActor.ts";
import type { IncomingRequest, RouteContext, Route } from "./route.ts";
import { changesAnything } from "./route.ts";

/** Whether the audit log keeps what a route does. */
export const isAudited = (row: Pick<Route, "changes" | "method" | "unaudited">): boolean =>
  changesAnything(row) && row.unaudited === undefined;

/** What a route works with, in the name of whoever asks: what is changed through it is kept in the audit log. */
export const withActor = (row: Pick<Route, "access">, incoming: IncomingRequest, context: RouteContext): RouteContext => ({
  ...context,
  store: withAuditActor(context.store, readActor(row, incoming)),
});

/** Who asks, by what he has proved. */
export function readActor({ access }: Pick<Route, "access">, { proof, callerIp: address }: IncomingRequest): Actor {
  if (access === "operator") return { kind: "operator", address };
  if (access === "account") return { kind: "password", ...(proof && { name: proof.account.name }), address };
  return { kind: "token", token: typeof proof?.right === "object" ? proof.right.id : "main", address };
}
