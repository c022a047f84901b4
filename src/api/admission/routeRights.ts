import { assertActive } from "../../engine/core/accounts/plans.ts";
import { assertUnrestricted, assertVerb } from "../../engine/core/model/rights.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import type { Proof } from "../auth/bearer.ts";
import type { Route } from "../route/route.ts";
import { changesAnything, requiredVerb } from "../route/route.ts";

/**
 * Throws `Refusal` if a token's rights do not cover a route, or if a disabled account calls a route that
 * changes anything or streams. A disabled account may still post steps of active runs and revoke its
 * credentials.
 */
export function assertRights({ account, right }: Proof, route: Route): void {
  const verb = requiredVerb(route);
  if (right === "read" && verb !== "read")
    throw new Refusal("forbidden", `token: read-only; use the account's main token or one with '${verb}'`);
  if (typeof right === "object") {
    if (!route.looksAtVerb) assertVerb(right, verb);
    if (verb === "publish" && !route.looksAtScope)
      assertUnrestricted(right, "this request may reach any destination");
  }
  if (route.streams) assertActive(account);
  if (changesAnything(route) && route.operation !== "step" && !route.forPassive) assertActive(account);
}
