import type { Actor } from "../../engine/core/model/auditEntry.ts";
import type { SessionIdentity } from "../auth/bearer.ts";
import { withAuditActor } from "../../engine/store/auditActor.ts";
import type { IncomingRequest, RouteContext, Route } from "./route.ts";
import { changesAnything } from "./route.ts";

/** Reports whether the audit log records what a route does. */
export const isAudited = (row: Pick<Route, "changes" | "method" | "unaudited">): boolean =>
  changesAnything(row) && row.unaudited === undefined;

/** Returns a route's context whose store records changes in the audit log under the name of the sender. */
export const withActor = (
  row: Pick<Route, "access">,
  incoming: IncomingRequest,
  context: RouteContext,
): RouteContext => ({
  ...context,
  store: withAuditActor(context.store, readActor(row, incoming)),
});

/** Returns who sent a request, according to the credentials that it proved. */
export function readActor(
  { access }: Pick<Route, "access">,
  { proof, operatorName, callerIp: address }: IncomingRequest,
): Actor {
  if (access === "operator") return { kind: "operator", ...withName(operatorName), address };
  if (proof?.session) return toSessionActor(proof.session, address);
  if (access === "account") return { kind: "password", ...(proof && { name: proof.account.name }), address };
  return { kind: "token", token: typeof proof?.right === "object" ? proof.right.id : "main", address };
}

/** Returns the person of a session, with the credential that opened the session. */
export function toSessionActor(
  { opener, name }: Pick<SessionIdentity, "opener" | "name">,
  address: string | null,
): Actor {
  const person = { ...withName(name), address };
  switch (opener.kind) {
    case "operator":
    case "password":
      return { kind: opener.kind, ...person };
    case "main":
      return { kind: "token", token: "main", ...person };
    case "readOnly":
      return { kind: "token", token: "readOnly", ...person };
    case "token":
      return { kind: "token", token: opener.id, ...person };
  }
}

const withName = (name = ""): { name?: string } => (name === "" ? {} : { name });
