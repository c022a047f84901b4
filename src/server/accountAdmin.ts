import { randomUUID } from "node:crypto";
import { existsSync, rmSync } from "node:fs";
import type { Server, Socket } from "node:net";
import { connect, createServer } from "node:net";
import { once } from "node:events";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { deleteAccount } from "./accountDeletion.ts";
import type { Desk as AccountDesk } from "../api/route/route.ts";
import type { AccountChange } from "../core/commands/account.ts";
import { withChange } from "../core/commands/account.ts";
import { checkAccountName } from "../core/commands/accountAsked.ts";
import type { Actor } from "../core/model/auditEntry.ts";
import { Refusal } from "../core/values/errors.ts";
import type { AccountId, Millis } from "../core/model/message.ts";
import { limits } from "../core/values/limits.ts";
import type { TokenAsked } from "../core/commands/token.ts";
import type { Token } from "../core/model/rights.ts";
import { newAccount } from "./credentials.ts";
import { keyUse, sealAgain } from "./encryptionKeys.ts";
import type { KeySource } from "../store/sql/keyRing.ts";
import { storeFor } from "../store/audited.ts";
import type { Store } from "../store/store.ts";

/** What can be done by whoever is at the machine of the server: with accounts, with their tokens, and with keys. */
export type Desk = AccountDesk & {
  /** Where clients reach the server. */
  url(): Promise<string>;
  /** Those besides the two that every account has. */
  tokens(account: AccountId): Promise<readonly Token[]>;
  createToken(token: NewToken): Promise<Token>;
  revokeToken(account: AccountId, id: string): Promise<{ revoked: boolean }>;
  /** Of each key that secrets are sealed with, how many rows; and how many are in clear. */
  keyUse(): Promise<readonly (readonly [version: number | "clear", rows: number])[]>;
  /** Seals again what is not sealed with the first key. Answers how many rows. */
  sealAgain(): Promise<number>;
};

/** Whoever is at the machine of the server. */
export const commandLine: Actor = { kind: "commandLine", address: null };

/** A token as it is asked for, by whoever runs the server. */
type NewToken = TokenAsked & Pick<Token, "account" | "hash">;

/** The server that has the data folder cannot be asked; the text says what to do. */
export class DeskRefused extends Error {}

type DeskParts = {
  /** How long the store keeps its log. */
  logRetention: Millis;
  /** In whose name: the audit log of an account names him. */
  by: Actor;
  /** Where the keys of the store are. */
  keys: KeySource;
  /** Random text, as of a signing key. */
  newSecret(): string;
  /** Where clients reach the server, or would if one ran. */
  url(): string;
};

/** The desk of a store that this process has opened. */
export function deskOf(store: Store, { logRetention, by, keys, newSecret, url }: DeskParts): Desk {
  const named = storeFor(store, by);
  const accounts = async () => (await store.read.accounts()).filter(({ deletedAt }) => deletedAt === undefined);
  return {
    accounts,
    url: async () => url(),
    create: async ({ name, change }) => {
      // The id of a deleted one can be nobody's name either, while it is there.
      checkAccountName(await store.read.accounts(), name);
      return named.execute("createAccount", withChange(newAccount({ id: randomUUID(), name, secret: newSecret }), change));
    },
    change: (account, change) => named.execute("changeAccount", { account, change }),
    delete: (account) => deleteAccount(store, account, { logRetention, by }),
    tokens: (account) => store.read.allSetUp("tokens", { account, limit: limits.tokens }),
    createToken: (token) => named.execute("createToken", { ...token, scope: null }),
    revokeToken: (account, id) => named.execute("revokeToken", { account, id }),
    keyUse: async () => [...(await keyUse(store.read))],
    sealAgain: async () => (keys === null ? 0 : sealAgain(store, keys)),
  };
}

/** A server has its data folder to itself, so it listens there for the command line. Longer paths cannot be listened at. */
const socketIn = (folder: string): string => join(folder, "waypost.sock");
const longestPath = 100;
const isPossible = (path: string): boolean => process.platform !== "win32" && Buffer.byteLength(path) <= longestPath;

type Question =
  | { ask: "accounts" | "url" | "keyUse" | "sealAgain" }
  | { ask: "tokens"; account: AccountId }
  | { ask: "createToken"; token: NewToken }
  | { ask: "revokeToken"; account: AccountId; id: string }
  | { ask: "delete"; account: AccountId }
  | { ask: "create"; asked: Parameters<Desk["create"]>[0] }
  | { ask: "change"; account: AccountId; change: AccountChange };
type Reply = { answer: unknown } | { refused: string };

/**
 * Listens for the command line in the data folder of this process. Who may write to the socket is who may read the
 * store: its own user. Answers what ends it; null where no socket is possible.
 */
export async function openDesk(folder: string, desk: Desk): Promise<Server | null> {
  const path = socketIn(folder);
  if (!isPossible(path)) return null;
  // What a server that was killed has left. There is no other one in this folder.
  rmSync(path, { force: true });
  const server = createServer({ allowHalfOpen: true }, (socket) => void serveOne(socket, desk));
  server.listen(path);
  await once(server, "listening");
  return server;
}

async function serveOne(socket: Socket, desk: Desk): Promise<void> {
  socket.on("error", () => socket.destroy());
  try {
    const question = JSON.parse(await text(socket)) as Question;
    socket.end(JSON.stringify(await replyTo(question, desk)));
  } catch {
    socket.destroy();
  }
}

async function replyTo(question: Question, desk: Desk): Promise<Reply> {
  try {
    return { answer: await answerTo(question, desk) };
  } catch (error) {
    return { refused: error instanceof Error ? error.message : String(error) };
  }
}

function answerTo(question: Question, desk: Desk): Promise<unknown> {
  if (question.ask === "delete") return desk.delete(question.account);
  if (question.ask === "create") return desk.create(question.asked);
  if (question.ask === "change") return desk.change(question.account, question.change);
  if (question.ask === "tokens") return desk.tokens(question.account);
  if (question.ask === "createToken") return desk.createToken(question.token);
  if (question.ask === "revokeToken") return desk.revokeToken(question.account, question.id);
  return desk[question.ask]();
}

/** The desk of the server that has a data folder. Throws `DeskRefused` where it cannot be asked. */
export function deskAt(folder: string): Desk {
  const path = socketIn(folder);
  const ask = async <T>(question: Question): Promise<T> => {
    const reply = await askAt(path, question).catch((error: unknown) => {
      const why = existsSync(path) ? String(error) : "it does not listen for commands there";
      throw new DeskRefused(`${folder}: a server has it, and cannot be asked (${why}); stop that server, and run the command again`);
    });
    if ("refused" in reply) throw new Refusal("invalid", reply.refused);
    return reply.answer as T;
  };
  return {
    accounts: () => ask({ ask: "accounts" }),
    url: () => ask({ ask: "url" }),
    create: (asked) => ask({ ask: "create", asked }),
    change: (account, change) => ask({ ask: "change", account, change }),
    delete: (account) => ask({ ask: "delete", account }),
    tokens: (account) => ask({ ask: "tokens", account }),
    createToken: (token) => ask({ ask: "createToken", token }),
    revokeToken: (account, id) => ask({ ask: "revokeToken", account, id }),
    keyUse: () => ask({ ask: "keyUse" }),
    sealAgain: () => ask({ ask: "sealAgain" }),
  };
}

async function askAt(path: string, question: Question): Promise<Reply> {
  const socket = connect(path);
  await once(socket, "connect");
  socket.end(JSON.stringify(question));
  return JSON.parse(await text(socket)) as Reply;
}
