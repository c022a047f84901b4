import { randomUUID } from "node:crypto";
import { existsSync, rmSync } from "node:fs";
import type { Server, Socket } from "node:net";
import { connect, createServer } from "node:net";
import { once } from "node:events";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { deleteAccountData } from "./accountDeletion.ts";
import { idleAlarm } from "../engine/clock/clock.ts";
import { withChange } from "../engine/core/commands/account.ts";
import { type AccountChange } from "../engine/core/model/account.ts";
import { assertAccountName } from "../engine/core/accounts/accountRequest.ts";
import type { TokenRequest } from "../engine/core/commands/token.ts";
import type { Actor } from "../engine/core/model/auditEntry.ts";
import type { Token } from "../engine/core/model/rights.ts";
import type { AccountId, Millis } from "../engine/core/values/basics.ts";
import { Refusal } from "../engine/core/values/errors.ts";
import { limits } from "../engine/core/values/limits.ts";
import { second } from "../engine/core/values/time.ts";
import { withAuditActor } from "../engine/store/auditActor.ts";
import type { KeySource } from "../engine/store/layout/keyRing.ts";
import type { Store } from "../engine/store/store.ts";
import { makeAccount } from "../settings/credentials.ts";
import type { EgressSettings } from "../settings/egressSettings.ts";
import { type FoundServer, longestSilence, silence } from "../settings/foundServer.ts";
import { countKeyUse, reencrypt } from "../settings/encryptionKeys.ts";
import { formatRefusal } from "../api/http/remedies.ts";

/** The author of changes made on the command line of the server's machine. */
export const commandLine: Actor = { kind: "commandLine", address: null };

/** A requested token, with its account and hash. */
type NewToken = TokenRequest & Pick<Token, "account" | "hash">;

/** The options of a `ServerAdmin`, besides the store. */
type ServerAdminOptions = {
  /** How long the store keeps its log, in milliseconds. */
  logRetention: Millis;
  /** The author of the changes, named in the audit log of the account. */
  actor: Actor;
  /** Where the keys of the store are. */
  keys: KeySource;
  /** Returns random text, as for a signing key. */
  newSecret(): string;
  /** Returns the URL at which clients reach the server while it runs. */
  url(): string;
  /** The settings of the server's outgoing connections. */
  egress: EgressSettings;
};

/** The input of every operation. `audited` is the store, with changes recorded in the actor's name. */
type Tools = ServerAdminOptions & { store: Store; audited: Store };

type Names<Args extends readonly unknown[]> = { readonly [At in keyof Args]: string };

/** Defines an operation: its function, and the names of its arguments on the socket. */
const operation = <Args extends readonly unknown[], Result>(
  run: (tools: Tools, ...args: Args) => Promise<Result>,
  ...names: Names<NoInfer<Args>>
) => ({ run, names: names as readonly string[] });

/**
 * Everything that the operator can do on the server's machine: manage accounts, their tokens, and encryption
 * keys. The functions of `ServerAdmin` and the requests on the socket follow from this table.
 */
const operations = {
  /** Lists the accounts that are not deleted. */
  accounts: operation(async ({ store }) =>
    (await store.read.accounts()).filter(({ deletedAt }) => deletedAt === undefined),
  ),
  /** Creates an account with new credentials. */
  create: operation(
    async ({ store, audited, newSecret }, { name, change }: { name: string; change: AccountChange }) => {
      // The list includes deleted accounts whose rows still exist, so their ids are refused as names too.
      assertAccountName(await store.read.accounts(), name);
      return audited.execute(
        "createAccount",
        withChange(makeAccount({ id: randomUUID(), name, secret: newSecret }), change),
      );
    },
    "asked",
  ),
  change: operation(
    ({ audited }, account: AccountId, change: AccountChange) =>
      audited.execute("changeAccount", { account, change }),
    "account",
    "change",
  ),
  delete: operation(
    ({ store, logRetention, actor }, account: AccountId) =>
      deleteAccountData(store, account, { logRetention, actor }),
    "account",
  ),
  /** Returns the URL at which clients reach the server. */
  url: operation(async ({ url }) => url()),
  /** Returns the settings of the server's outgoing connections. */
  egressSettings: operation(async ({ egress }) => egress),
  /** Lists the tokens of an account, except its main and read-only tokens. */
  tokens: operation(
    ({ store }, account: AccountId) => store.read.listResources("tokens", { account, limit: limits.tokens }),
    "account",
  ),
  createToken: operation(
    ({ audited }, token: NewToken) => audited.execute("createToken", { ...token, scope: null }),
    "token",
  ),
  revokeToken: operation(
    ({ audited }, account: AccountId, id: string) => audited.execute("revokeToken", { account, id }),
    "account",
    "id",
  ),
  /** Ends the hold of all deliveries. Reports whether there was one. */
  unhold: operation(async ({ store }) => {
    const wasHeld = await store.hold.isOnHold();
    if (wasHeld) await store.hold.set(false);
    return { wasHeld };
  }),
  /** Counts the rows with secrets by the key that encrypts them, and those with unencrypted secrets. */
  keyUse: operation(async ({ store }) => [...(await countKeyUse(store.read))]),
  /** Encrypts all secrets with the first key. Returns how many rows changed. */
  sealAgain: operation(async ({ store, keys }) => (keys === null ? 0 : reencrypt(store, keys))),
};

type Operations = typeof operations;
type OperationName = keyof Operations;

/** All operations as functions. */
export type ServerAdmin = {
  [Name in OperationName]: Operations[Name]["run"] extends (tools: Tools, ...args: infer Args) => infer Result
    ? (...args: Args) => Result
    : never;
};

type Perform = (name: OperationName, args: readonly unknown[]) => Promise<unknown>;

/** Returns a `ServerAdmin` whose operations all call one function. */
const createAdmin = (perform: Perform): ServerAdmin =>
  Object.fromEntries(
    operationNames.map((name) => [name, (...args: unknown[]) => perform(name, args)]),
  ) as ServerAdmin;

/** Operations that change nothing, so a command that gave up need not look at their effect. */
const reads: ReadonlySet<OperationName> = new Set(["accounts", "url", "egressSettings", "tokens", "keyUse"]);

const operationNames = Object.keys(operations) as OperationName[];

/** Thrown if the server that uses the data folder does not respond to commands. The text says what to do. */
export class ServerAdminRefused extends Error {}

/** Thrown if that server takes a connection and then sends nothing, as if its process were suspended. */
class ServerSilent extends ServerAdminRefused {}

/** Returns the administration of a store that this process has opened. */
export function createServerAdmin(store: Store, parts: ServerAdminOptions): ServerAdmin {
  const tools: Tools = { ...parts, store, audited: withAuditActor(store, parts.actor) };
  return createAdmin((name, args) => {
    const run = operations[name].run as (tools: Tools, ...args: readonly unknown[]) => Promise<unknown>;
    return run(tools, ...args);
  });
}

/**
 * The path of the socket at which a server listens for the command line. The data folder belongs to one
 * server only. A longer path than `maxPathLength` bytes cannot be used for a socket.
 */
const toSocketPath = (folder: string): string => join(folder, "waypost.sock");
const maxPathLength = 100;
const canListenAt = (path: string): boolean =>
  process.platform !== "win32" && Buffer.byteLength(path) <= maxPathLength;

/** How often a server that works on a request sends a sign of life, a space before its reply. */
const signEvery: Millis = second;

/** The name of an operation, and its arguments by name. */
type AdminRequest = { ask: OperationName } & Readonly<Record<string, unknown>>;
type AdminReply = { answer: unknown } | { refused: string };

/**
 * Listens for the command line in the data folder of this process. Only the user of this process can write to
 * the socket, and that user can read the store anyway. Returns the listening server, or null if no socket is
 * possible.
 */
export async function listenForAdmin(folder: string, admin: ServerAdmin): Promise<Server | null> {
  const path = toSocketPath(folder);
  if (!canListenAt(path)) return null;
  try {
    // A killed server leaves its socket behind. No other server uses this folder.
    rmSync(path, { force: true });
    const server = createServer({ allowHalfOpen: true }, (socket) => void serveConnection(socket, admin));
    server.listen(path);
    await once(server, "listening");
    return server;
  } catch (error) {
    throw new ServerAdminRefused(
      `${path}: the socket for commands cannot be created (${String(error)}); ` +
        "remove what is there, or choose a data folder on a disk that has sockets",
    );
  }
}

async function serveConnection(socket: Socket, admin: ServerAdmin): Promise<void> {
  socket.on("error", () => socket.destroy());
  try {
    const request = JSON.parse(await text(socket)) as AdminRequest;
    await sendSign(socket);
    const stopSigns = idleAlarm(socket, signEvery, () => socket.write(" "));
    const reply = await makeReply(request, admin);
    stopSigns();
    socket.end(JSON.stringify(reply));
  } catch {
    socket.destroy();
  }
}

/**
 * Sends a sign of life. Rejects if the command has given up: a server that was suspended must not carry out
 * later what its operator believes undone.
 */
const sendSign = (socket: Socket): Promise<void> =>
  new Promise((resolve, reject) => socket.write(" ", (error) => (error ? reject(error) : resolve())));

async function makeReply(request: AdminRequest, admin: ServerAdmin): Promise<AdminReply> {
  try {
    return { answer: await executeRequest(request, admin) };
  } catch (error) {
    return { refused: error instanceof Error ? formatRefusal(error) : String(error) };
  }
}

function executeRequest(request: AdminRequest, admin: ServerAdmin): Promise<unknown> {
  const { ask } = request;
  if (!operationNames.includes(ask))
    throw new Refusal(
      "invalid",
      `${ask}: unknown to this server; use the waypost version that the server runs`,
    );
  const perform = admin[ask] as (...args: readonly unknown[]) => Promise<unknown>;
  return perform(...operations[ask].names.map((name) => request[name]));
}

/**
 * Returns the administration of the server that uses a data folder. Its operations throw `ServerAdminRefused`
 * if the server does not respond.
 */
export function connectToServerAdmin(folder: string): ServerAdmin {
  const path = toSocketPath(folder);
  return createAdmin(async (name, args) => {
    const named = operations[name].names.map((argument, at) => [argument, args[at]] as const);
    const reply = await sendRequest(folder, { ask: name, ...Object.fromEntries(named) }).catch(
      (error: unknown) => {
        if (error instanceof ServerSilent) throw error;
        const why = existsSync(path) ? String(error) : "no socket for commands";
        throw new ServerAdminRefused(
          `${folder}: in use by a server that does not respond to commands (${why}); ` +
            "stop the server and run the command again",
        );
      },
    );
    if ("refused" in reply) throw new Refusal("invalid", reply.refused);
    return reply.answer;
  });
}

/** Finds the running server of a data folder. */
export const findServer = (folder: string): Promise<FoundServer> =>
  connectToServerAdmin(folder)
    .url()
    .then(
      (url) => ({ url }),
      (error: unknown) => (error instanceof ServerSilent ? "silent" : "none"),
    );

async function sendRequest(folder: string, request: AdminRequest): Promise<AdminReply> {
  const socket = connect(toSocketPath(folder));
  const stopWatch = idleAlarm(socket, longestSilence, () =>
    socket.destroy(
      new ServerSilent(
        `${folder}: in use by a server that ${silence}; continue or restart it, ` +
          (reads.has(request.ask)
            ? "and run the command again"
            : "and check whether the command took effect before you run it again"),
      ),
    ),
  );
  try {
    await once(socket, "connect");
    socket.end(JSON.stringify(request));
    return JSON.parse(await text(socket)) as AdminReply;
  } finally {
    stopWatch();
  }
}
