import type { AccountId } from "../../engine/core/values/basics.ts";
import { Refusal } from "../../engine/core/values/errors.ts";

/**
 * A token that was refused: the account that it names, its id, and the reason. The id is `unknown` if the
 * token never was one of this account. Anybody can make such a token.
 */
export type RefusedToken = {
  account: AccountId;
  id: string;
  reason: "expired" | "revoked" | "unauthorized";
};

/** The refusal of a token that names an account. The response shows nothing of it. */
export class TokenRefusal extends Refusal {
  readonly refused: RefusedToken;

  constructor({ code, message, retryAfter }: Refusal, refused: RefusedToken) {
    super(code, message, { retryAfter });
    this.refused = refused;
  }
}
