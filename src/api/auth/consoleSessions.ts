import { createHmac, randomBytes, scrypt } from "node:crypto";
import { promisify } from "node:util";
import type { ConsoleSession, SessionCredential } from "../../engine/core/model/consoleSession.ts";
import { findSession, sessionSpan } from "../../engine/core/model/consoleSession.ts";
import type { Account } from "../../engine/core/model/account.ts";
import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import { toScope } from "../../engine/core/model/rights.ts";
import { BoundedMap } from "../../engine/core/caches/boundedMap.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import { minute } from "../../engine/core/values/time.ts";
import type { Store } from "../../engine/store/store.ts";
import type { Proof, Right, SessionIdentity } from "./bearer.ts";
import type { BrowserRequest } from "./consoleRequest.ts";
import { assertConsoleRequest, readConsoleCookie } from "./consoleRequest.ts";
import type { OwnHosts } from "./ownHosts.ts";
import { hashToken, isSameSecret } from "./token.ts";

/** The services that console sessions use. `hosts` is null if the console is turned off. */
export type SessionParts = {
  store: Store;
  now(): Millis;
  operatorPassword: string | null;
  hosts: OwnHosts | null;
};

/** The proof of a request with a session. */
export type SessionProof = Proof & { session: SessionIdentity };

/** A new session, and the cookie that belongs to it. */
export type OpenedSession = { cookie: string; session: ConsoleSession };

/** The name that an operator's session carries. */
export type OperatorSession = { name: string; expiresAt: Millis };

/** How long a one-time code is valid. */
const codeSpan: Millis = 10 * minute;
/** The number of ended operator sessions that are remembered. If there are more, the oldest is forgotten. */
const maxEnded = 10_000;

const endedMessage = "session: ended or expired; log in again";

/**
 * The sessions of the web console. A session in an account is stored with the account, so it is valid on
 * every node and ends with the credentials of the account. The session of the operator belongs to no account.
 * Its cookie is signed with a key that is derived from the operator's password, so every node accepts it, and
 * it ends when the password changes. Only the node that receives a log-out of the operator remembers it.
 */
export class ConsoleSessions {
  readonly #parts: SessionParts;
  readonly #ended = new BoundedMap<string, true>(maxEnded);
  readonly #codes = new BoundedMap<string, { account: AccountId; expiresAt: Millis }>(100);
  #operatorKey: Promise<Buffer> | null = null;

  constructor(parts: SessionParts) {
    this.#parts = parts;
  }

  /** Reports whether the console is turned on. */
  get isOn(): boolean {
    return this.#parts.hosts !== null;
  }

  /** Reports whether an operator can log in. */
  get hasOperator(): boolean {
    return this.#parts.operatorPassword !== null;
  }

  /** Throws `Refusal` unless the console itself has sent this request. */
  check(request: BrowserRequest): void {
    const { hosts } = this.#parts;
    if (hosts === null) throw new Refusal("forbidden", "session: the console is turned off (--console off)");
    assertConsoleRequest(request, hosts);
  }

  /** Finds the account and the rights of a session cookie. Throws `Refusal`. */
  async prove(request: BrowserRequest): Promise<SessionProof> {
    this.check(request);
    const found = await this.find(request);
    if (found === null) throw new Refusal("unauthorized", endedMessage);
    return found;
  }

  /** Like `prove`, but returns null if there is no valid session. The request has been checked. */
  async find(request: BrowserRequest): Promise<SessionProof | null> {
    const cookie = readConsoleCookie(request, "session");
    const named = cookie === null ? null : /^([\w-]{1,400})\.[\w-]{43}$/.exec(cookie)?.[1];
    if (cookie === null || !named) return null;
    const id = Buffer.from(named, "base64url").toString();
    const { store, now } = this.#parts;
    const account = await store.read.account(id);
    const hash = hashSession(cookie);
    const session = account && findSession(account.sessions, hash, now());
    if (!session || account.deletedAt !== undefined) return null;
    const { name, credential, expiresAt } = session;
    // A session that the operator has opened lasts only as long as the operator's own.
    if (credential.kind === "operator" && (await this.findOperator(request)) === null) return null;
    const right = await this.#findRight(account, credential);
    if (right === null) return null;
    const identity = { name, hash, opener: credential, expiresAt };
    return { account, by: "header", token: cookie, right, session: identity };
  }

  async #findRight(account: Account, credential: SessionCredential): Promise<Right | null> {
    if (credential.kind === "readOnly") return "read";
    if (credential.kind !== "token") return "all";
    const token = await this.#parts.store.read.findResource("tokens", account.id, credential.id);
    const isValid = token !== null && (token.expiresAt === null || token.expiresAt > this.#parts.now());
    return isValid ? toScope(token) : null;
  }

  /** Opens a session in an account. `store` records it in the audit log. Throws `Refusal`. */
  async open(
    account: Account,
    { name, credential, store }: Pick<ConsoleSession, "name" | "credential"> & { store: Store },
  ): Promise<OpenedSession> {
    const { id, tokenHash } = account;
    const cookie = `${Buffer.from(id).toString("base64url")}.${randomBytes(32).toString("base64url")}`;
    const hash = hashSession(cookie);
    const session = await store.execute("openSession", { account: id, tokenHash, hash, name, credential });
    return { cookie, session };
  }

  /** Opens a session of the operator, whose password has been checked. */
  async openForOperator(name: string): Promise<{ cookie: string; expiresAt: Millis }> {
    const expiresAt = this.#parts.now() + sessionSpan;
    const content = { name, expiresAt, nonce: randomBytes(16).toString("base64url") };
    const text = Buffer.from(JSON.stringify(content)).toString("base64url");
    return { cookie: `${text}.${await this.#sign(text)}`, expiresAt };
  }

  /** Returns the operator's session of a request, or null if there is no valid one. */
  async findOperator(request: BrowserRequest): Promise<OperatorSession | null> {
    const cookie = readConsoleCookie(request, "operator");
    if (cookie === null || cookie.length > 4_000 || !this.hasOperator) return null;
    // With anything else in the cookie, its hash would not be the one that a log-out remembers.
    const [, text = "", signature = ""] = /^([\w-]+)\.([\w-]{43})$/.exec(cookie) ?? [];
    if (!isSameSecret(signature, await this.#sign(text)) || this.#ended.get(hashSession(cookie))) return null;
    const session = JSON.parse(Buffer.from(text, "base64url").toString()) as OperatorSession;
    return session.expiresAt > this.#parts.now() ? session : null;
  }

  /** Throws `Refusal` unless the request has a valid session of the operator. */
  async proveOperator(request: BrowserRequest): Promise<OperatorSession> {
    this.check(request);
    const found = await this.findOperator(request);
    if (found === null) throw new Refusal("unauthorized", endedMessage);
    return found;
  }

  /** Ends the operator's session of a request. */
  endOperator(request: BrowserRequest): void {
    const cookie = readConsoleCookie(request, "operator");
    if (cookie !== null) this.#ended.renew(hashSession(cookie), true);
  }

  /** Returns a code that opens a session in an account once, within ten minutes, from this machine. */
  createCode(account: AccountId): string {
    const code = randomBytes(24).toString("base64url");
    this.#codes.renew(hashToken(code), { account, expiresAt: this.#parts.now() + codeSpan });
    return code;
  }

  /** Uses up a code. Returns its account, or null if the code is unknown, used or expired. */
  takeCode(code: string): AccountId | null {
    const hash = hashToken(code);
    const found = this.#codes.get(hash);
    this.#codes.delete(hash);
    return found && found.expiresAt > this.#parts.now() ? found.account : null;
  }

  async #sign(text: string): Promise<string> {
    // A slow function, so that a cookie does not let anyone guess the password quickly.
    this.#operatorKey ??= deriveKey(this.#parts.operatorPassword ?? "", "waypost console operator", 32);
    return createHmac("sha256", await this.#operatorKey)
      .update(text)
      .digest("base64url");
  }
}

const deriveKey = promisify<string, string, number, Buffer>(scrypt);

/** A token has no spaces, so the hash of a session never equals that of a token. */
const hashSession = (cookie: string): string => hashToken(`console session ${cookie}`);
