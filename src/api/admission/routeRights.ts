import { mustBeActive } from "../../engine/core/accounts/plans.ts";
import { mustBeUnrestricted, mustHaveVerb } from "../../engine/core/model/rights.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import type { Proof } from "../auth/bearer.ts";
import type { Route } from "../route/route.ts";
import { changesAnything, requiredVerb } from "../route/route.ts";

/**
 * Throws `Refusal` if a token's rights do not cover a route, or if a passive account calls a route that
 * changes anything or streams. A passive account may still post steps of active runs and revoke its
 * credentials.
 */
export function checkRights({ account, right }: Proof, route: Route): void {
  const verb = requiredVerb(route);
  if (right === "read" && verb !== "read")
    throw new Refusal("forbidden", `token: read-only; use the account's main token or one with '${verb}'`);
  if (typeof right === "object") {
    if (!route.looksAtVerb) mustHaveVerb(right, verb);
    if (verb === "publish" && !route.looksAtScope)
      mustBeUnrestricted(right, "this request may reach any destination");
  }
  if (route.streams) mustBeActive(account);
  if (changesAnything(route) && route.operation !== "step" && !route.forPassive) mustBeActive(account);
}
