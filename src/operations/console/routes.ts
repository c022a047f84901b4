import { z } from "zod";
import type { Account } from "../../engine/core/model/account.ts";
import type { SessionCredential } from "../../engine/core/model/consoleSession.ts";
import { sessionSpan } from "../../engine/core/model/consoleSession.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import { second } from "../../engine/core/values/time.ts";
import { withAuditActor } from "../../engine/store/auditActor.ts";
import type { AdmissionPolicy } from "../../api/admission/policy.ts";
import type { Proof, SessionIdentity } from "../../api/auth/bearer.ts";
import type { BrowserRequest, ConsoleCookie } from "../../api/auth/consoleRequest.ts";
import { formatConsoleCookie } from "../../api/auth/consoleRequest.ts";
import type { ConsoleSessions, OperatorSession } from "../../api/auth/consoleSessions.ts";
import { toSessionActor } from "../../api/route/actor.ts";
import { readObject } from "../../api/route/readObject.ts";
import type {
  IncomingRequest,
  Route,
  RouteContext,
  RouteDescription,
  RouteResponse,
} from "../../api/route/route.ts";
import { noParameters } from "../../api/route/route.ts";

type Parts = { sessions: ConsoleSessions; admission: AdmissionPolicy };
type Handler = (browser: BrowserRequest, incoming: IncomingRequest, context: RouteContext) => Promise<Reply>;
type Reply = { shown: Shown; cookies?: readonly string[] };
type Shown = {
  account: (Pick<Proof, "account" | "right"> & { session: SessionIdentity }) | null;
  operator: OperatorSession | null;
};

const path = "/console/session";
const name = z.string("is not a string").trim().max(100, "is longer than 100 characters").default("");
const text = z.string("is missing or not a string").min(1, "is empty").max(4_000, "is too long");

/** The body of a login: one of these. */
const loginSchema = z.union(
  [
    z.strictObject({ account: text, password: text, name }),
    z.strictObject({ token: text, name }),
    z.strictObject({ operatorPassword: text, name }),
    z.strictObject({ code: text }),
    z.strictObject({ switchTo: text }),
  ],
  "must have account and password, or token, or operatorPassword, or code, or switchTo",
);

/** Returns the routes by which the console opens, reads and ends a session. */
export function createSessionRoutes(parts: Parts): Route[] {
  const { sessions } = parts;
  return [
    makeRoute(sessions, { method: "GET", summary: "Read the session" }, async (browser) => ({
      shown: await readSession(sessions, browser),
    })),
    makeRoute(sessions, { method: "POST", summary: "Open a session" }, createLogin(parts)),
    makeRoute(sessions, { method: "DELETE", summary: "End the session" }, createLogout(sessions)),
  ];
}

async function readSession(sessions: ConsoleSessions, browser: BrowserRequest): Promise<Shown> {
  return { account: await sessions.find(browser), operator: await sessions.findOperator(browser) };
}

function makeRoute(
  sessions: ConsoleSessions,
  described: Pick<RouteDescription, "method" | "summary">,
  handle: Handler,
): Route {
  return {
    ...described,
    path,
    tag: "Console",
    answers: {},
    refusals: [],
    unaudited: "the commands that open and close sessions record it",
    access: "console",
    params: noParameters,
    query: noParameters,
    respond: async (incoming, context): Promise<RouteResponse> => {
      if (!incoming.browser) throw new Refusal("forbidden", "session: only for the console");
      const { shown, cookies = [] } = await handle(incoming.browser, incoming, context);
      const headers = { "Cache-Control": "no-store" };
      return { status: 200, body: toJson(shown, sessions.hasOperator, context), headers, cookies };
    },
  };
}

const toJson = ({ account, operator }: Shown, hasOperator: boolean, { version }: RouteContext) => ({
  account: account && { id: account.account.id, name: account.account.name },
  rights: account && (typeof account.right === "object" ? account.right.verbs : account.right),
  name: account?.session.name ?? operator?.name ?? "",
  openedWith: account?.session.opener.kind ?? null,
  expiresAt: account?.session.expiresAt ?? operator?.expiresAt ?? null,
  operator: operator !== null,
  hasOperator,
  // A stranger does not learn it.
  version: account || operator ? (version ?? null) : null,
});

type Login = z.output<typeof loginSchema>;

function createLogin(parts: Parts): Handler {
  return async (browser, incoming, context) => {
    const login = readObject(loginSchema, incoming);
    const person = browser.user ?? ("name" in login ? login.name : "");
    if ("operatorPassword" in login) return logInOperator(parts, browser, { login, person, incoming });
    const { sessions } = parts;
    const operator = await sessions.findOperator(browser);
    const { account, right, opener } = await findLogin(parts, login, { operator, incoming, context });
    const named = opener.kind === "operator" ? (operator?.name ?? "") : person;
    const actor = toSessionActor({ opener, name: named }, incoming.callerIp);
    const { cookie, session } = await sessions.open(account, {
      name: named,
      credential: opener,
      store: withAuditActor(context.store, actor),
    });
    const { hash, expiresAt } = session;
    return {
      shown: { account: { account, right, session: { name: named, hash, opener, expiresAt } }, operator },
      cookies: [setCookie(browser, "session", cookie)],
    };
  };
}

async function logInOperator(
  { sessions, admission }: Parts,
  browser: BrowserRequest,
  {
    login,
    person,
    incoming,
  }: { login: { operatorPassword: string }; person: string; incoming: IncomingRequest },
): Promise<Reply> {
  await admission.checkLogin("operator", toBasic("operator", login.operatorPassword), incoming.callerIp);
  const { cookie, expiresAt } = await sessions.openForOperator(person);
  return {
    shown: { account: null, operator: { name: person, expiresAt } },
    cookies: [setCookie(browser, "operator", cookie)],
  };
}

type LoginContext = { operator: OperatorSession | null; incoming: IncomingRequest; context: RouteContext };
type Holder = Pick<Proof, "account" | "right"> & { opener: SessionCredential };

/** Checks what a person gave and returns the account, its rights and the credential. Throws `Refusal`. */
async function findLogin(
  { sessions, admission }: Parts,
  login: Exclude<Login, { operatorPassword: string }>,
  { operator, incoming: { callerIp }, context: { store } }: LoginContext,
): Promise<Holder> {
  if ("switchTo" in login) {
    if (operator === null) throw new Refusal("forbidden", "switchTo: requires a session of the operator");
    return { account: await findActive(store, login.switchTo), right: "all", opener: { kind: "operator" } };
  }
  if ("code" in login) {
    const id = isLoopback(callerIp) ? sessions.takeCode(login.code) : null;
    if (id === null)
      throw new Refusal(
        "unauthorized",
        "code: used, expired or unknown; log in with the password or a token",
      );
    return { account: await findActive(store, id), right: "all", opener: { kind: "password" } };
  }
  const isToken = "token" in login;
  const { proof } = isToken
    ? await admission.checkLogin("token", `Bearer ${login.token}`, callerIp)
    : await admission.checkLogin("account", toBasic(login.account, login.password), callerIp);
  if (!proof) throw new Refusal("unauthorized", "account: unknown");
  return { ...proof, opener: isToken ? toCredential(proof) : { kind: "password" } };
}

const toCredential = ({ right }: Proof): SessionCredential =>
  typeof right === "object"
    ? { kind: "token", id: right.id }
    : { kind: right === "read" ? "readOnly" : "main" };

async function findActive({ read }: RouteContext["store"], id: string): Promise<Account> {
  const account = await read.account(id);
  if (account && account.deletedAt === undefined) return account;
  throw new Refusal("not-found", `switchTo: there is no account ${JSON.stringify(id.slice(0, 200))}`);
}

const isLoopback = (address: string | null): boolean =>
  address !== null && (address === "::1" || /^127\.\d+\.\d+\.\d+$/.test(address));

const toBasic = (user: string, password: string): string =>
  `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`;

const setCookie = (browser: BrowserRequest, kind: ConsoleCookie, value: string): string =>
  formatConsoleCookie(browser, kind, { value, seconds: sessionSpan / second });

const createLogout =
  (sessions: ConsoleSessions): Handler =>
  async (browser, incoming, { store }) => {
    const proof = await sessions.find(browser);
    if (proof) {
      const audited = withAuditActor(store, toSessionActor(proof.session, incoming.callerIp));
      await audited.execute("closeSession", { account: proof.account.id, hash: proof.session.hash });
    }
    sessions.endOperator(browser);
    return {
      shown: { account: null, operator: null },
      cookies: (["session", "operator"] as const).map((kind) =>
        formatConsoleCookie(browser, kind, { value: null, seconds: 0 }),
      ),
    };
  };
