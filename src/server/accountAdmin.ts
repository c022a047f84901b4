import { randomUUID } from "node:crypto";
import { existsSync, rmSync } from "node:fs";
import type { Server, Socket } from "node:net";
import { connect, createServer } from "node:net";
import { once } from "node:events";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { deleteAccountData } from "./accountDeletion.ts";
import type { AccountChange } from "../core/commands/account.ts";
import { withChange } from "../core/commands/account.ts";
import { checkAccountName } from "../core/commands/accountRequest.ts";
import type { Actor } from "../core/model/auditEntry.ts";
import { Refusal } from "../core/values/errors.ts";
import type { AccountId, Millis } from "../core/model/message.ts";
import { limits } from "../core/values/limits.ts";
import type { TokenRequest } from "../core/commands/token.ts";
import type { Token } from "../core/model/rights.ts";
import { makeAccount } from "./credentials.ts";
import { countKeyUse, reencrypt } from "./encryptionKeys.ts";
import type { KeySource } from "../store/sql/keyRing.ts";
import { withAuditActor } from "../store/auditActor.ts";
import type { Store } from "../store/store.ts";

/** Whoever is at the machine of the server. */
export const commandLine: Actor = { kind: "commandLine", address: null };

/** A token as it is asked for, by whoever runs the server. */
type NewToken = TokenRequest & Pick<Token, "account" | "hash">;

type ServerAdminOptions = {
  /** How long the store keeps its log. */
  logRetention: Millis;
  /** In whose name: the audit log of an account names him. */
  actor: Actor;
  /** Where the keys of the store are. */
  keys: KeySource;
  /** Random text, as of a signing key. */
  newSecret(): string;
  /** Where clients reach the server, or would if one ran. */
  url(): string;
};

/** What operations work with. `named`: the store, for changes in the name of whoever asks. */
type Tools = ServerAdminOptions & { store: Store; audited: Store };

type Names<Args extends readonly unknown[]> = { readonly [At in keyof Args]: string };

/** An operation: what it does, and the names that its arguments have on the socket. */
const operation = <Args extends readonly unknown[], Result>(
  run: (tools: Tools, ...args: Args) => Promise<Result>,
  ...names: Names<NoInfer<Args>>
) => ({ run, names: names as readonly string[] });

/**
 * What can be done by whoever is at the machine of the server: with accounts, with their tokens, and with keys. The
 * administration, the questions on the socket and their answers follow from this table.
 */
const operations = {
  /** Accounts that are not deleted. */
  accounts: operation(async ({ store }) => (await store.read.accounts()).filter(({ deletedAt }) => deletedAt === undefined)),
  /** Makes an account with new credentials. */
  create: operation(async ({ store, audited, newSecret }, { name, change }: { name: string; change: AccountChange }) => {
    // The id of a deleted one can be nobody's name either, while it is there.
    checkAccountName(await store.read.accounts(), name);
    return audited.execute("createAccount", withChange(makeAccount({ id: randomUUID(), name, secret: newSecret }), change));
  }, "asked"),
  change: operation(
    ({ audited }, account: AccountId, change: AccountChange) => audited.execute("changeAccount", { account, change }),
    "account",
    "change",
  ),
  delete: operation(
    ({ store, logRetention, actor }, account: AccountId) => deleteAccountData(store, account, { logRetention, actor }),
    "account",
  ),
  /** Where clients reach the server. */
  url: operation(async ({ url }) => url()),
  /** Those besides the two that every account has. */
  tokens: operation(({ store }, account: AccountId) => store.read.listResources("tokens", { account, limit: limits.tokens }), "account"),
  createToken: operation(({ audited }, token: NewToken) => audited.execute("createToken", { ...token, scope: null }), "token"),
  revokeToken: operation(({ audited }, account: AccountId, id: string) => audited.execute("revokeToken", { account, id }), "account", "id"),
  /** Of each key that secrets are sealed with, how many rows; and how many are in clear. */
  keyUse: operation(async ({ store }) => [...(await countKeyUse(store.read))]),
  /** Seals again what is not sealed with the first key. Answers how many rows. */
  sealAgain: operation(async ({ store, keys }) => (keys === null ? 0 : reencrypt(store, keys))),
};

type Operations = typeof operations;
type OperationName = keyof Operations;

/** Every operation, for who asks for it. */
export type ServerAdmin = {
  [Name in OperationName]: Operations[Name]["run"] extends (tools: Tools, ...args: infer Args) => infer Result
    ? (...args: Args) => Result
    : never;
};

type Perform = (name: OperationName, args: readonly unknown[]) => Promise<unknown>;

/** Returns an administration whose operations are all done by one function. */
const createAdmin = (perform: Perform): ServerAdmin =>
  Object.fromEntries(operationNames.map((name) => [name, (...args: unknown[]) => perform(name, args)])) as ServerAdmin;

const operationNames = Object.keys(operations) as OperationName[];

/** The server that has the data folder cannot be asked; the text says what to do. */
export class ServerAdminRefused extends Error {}

/** Returns the administration of a store that this process has opened. */
export function createServerAdmin(store: Store, parts: ServerAdminOptions): ServerAdmin {
  const tools: Tools = { ...parts, store, audited: withAuditActor(store, parts.actor) };
  return createAdmin((name, args) => {
    const run = operations[name].run as (tools: Tools, ...args: readonly unknown[]) => Promise<unknown>;
    return run(tools, ...args);
  });
}

/** A server has its data folder to itself, so it listens there for the command line. Longer paths cannot be listened at. */
const toSocketPath = (folder: string): string => join(folder, "waypost.sock");
const maxPathLength = 100;
const canListenAt = (path: string): boolean => process.platform !== "win32" && Buffer.byteLength(path) <= maxPathLength;

/** The name of an operation, and its arguments by their names. */
type AdminRequest = { ask: OperationName } & Readonly<Record<string, unknown>>;
type AdminReply = { answer: unknown } | { refused: string };

/**
 * Listens for the command line in the data folder of this process. Who may write to the socket is who may read the
 * store: its own user. Answers what ends it; null where no socket is possible.
 */
export async function listenForAdmin(folder: string, admin: ServerAdmin): Promise<Server | null> {
  const path = toSocketPath(folder);
  if (!canListenAt(path)) return null;
  // What a server that was killed has left. There is no other one in this folder.
  rmSync(path, { force: true });
  const server = createServer({ allowHalfOpen: true }, (socket) => void serveConnection(socket, admin));
  server.listen(path);
  await once(server, "listening");
  return server;
}

async function serveConnection(socket: Socket, admin: ServerAdmin): Promise<void> {
  socket.on("error", () => socket.destroy());
  try {
    const request = JSON.parse(await text(socket)) as AdminRequest;
    socket.end(JSON.stringify(await makeReply(request, admin)));
  } catch {
    socket.destroy();
  }
}

async function makeReply(request: AdminRequest, admin: ServerAdmin): Promise<AdminReply> {
  try {
    return { answer: await executeRequest(request, admin) };
  } catch (error) {
    return { refused: error instanceof Error ? error.message : String(error) };
  }
}

function executeRequest(request: AdminRequest, admin: ServerAdmin): Promise<unknown> {
  const { ask } = request;
  if (!operationNames.includes(ask)) throw new Refusal("invalid", `${ask}: unknown to this server; use its own version of waypost`);
  const perform = admin[ask] as (...args: readonly unknown[]) => Promise<unknown>;
  return perform(...operations[ask].names.map((name) => request[name]));
}

/** Returns the administration of the server that has a data folder open. Throws `ServerAdminRefused` if it cannot be asked. */
export function connectToServerAdmin(folder: string): ServerAdmin {
  const path = toSocketPath(folder);
  return createAdmin(async (name, args) => {
    const named = operations[name].names.map((argument, at) => [argument, args[at]] as const);
    const reply = await sendRequest(path, { ask: name, ...Object.fromEntries(named) }).catch((error: unknown) => {
      const why = existsSync(path) ? String(error) : "it does not listen for commands there";
      throw new ServerAdminRefused(`${folder}: a server has it, and cannot be asked (${why}); stop that server, and run the command again`);
    });
    if ("refused" in reply) throw new Refusal("invalid", reply.refused);
    return reply.answer;
  });
}

async function sendRequest(path: string, request: AdminRequest): Promise<AdminReply> {
  const socket = connect(path);
  await once(socket, "connect");
  socket.end(JSON.stringify(request));
  return JSON.parse(await text(socket)) as AdminReply;
}
