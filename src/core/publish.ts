import type { Decision } from "./command.ts";
import type { ErrorCode } from "./errors.ts";
import { Refusal } from "./errors.ts";
import { accept, linesTo } from "./lease.ts";
import { defaults, limits, spans } from "./limits.ts";
import type { Account, AccountId, CallbackSettings, Letter, MessageId, Millis, SendSettings } from "./message.ts";

export type Published = { messageId: MessageId; deduplicated: boolean };
/** What became of one letter of a publish: a message, an older message, or a reason why not. */
export type PublishResult = Published | { refused: ErrorCode; message: string };

/**
 * Takes in letters, each for itself: one that is refused does not stop the others. The answers are in their order.
 * A letter whose deduplication key was seen within the window makes nothing and is answered with the older message.
 */
export const publish: Decision<{ account: AccountId; letters: readonly Letter[] }, PublishResult[]> = {
  needs: ({ account, letters }) => ({
    accounts: [[account]],
    lines: linesTo(
      account,
      letters.map(({ url }) => url),
    ),
    deduplications: letters.flatMap(({ deduplication }) => (deduplication === null ? [] : [[account, deduplication] as const])),
  }),
  decide: ({ account: id, letters }, draft, moment) => {
    const account = existing(draft.get("accounts", id));
    return letters.map((letter) => {
      const refusal = limitBrokenBy(letter, moment.now);
      if (refusal) return refusal;
      const older = letter.deduplication === null ? undefined : draft.get("deduplications", id, letter.deduplication);
      if (older && older.expiresAt > moment.now) return { messageId: older.messageId, deduplicated: true };
      const { id: messageId } = accept(draft, moment, account, letter);
      if (letter.deduplication !== null) {
        draft.put("deduplications", { account: id, key: letter.deduplication, messageId, expiresAt: moment.now + spans.deduplication });
      }
      return { messageId, deduplicated: false };
    });
  },
};

/** The account a command speaks for. It can have been removed since the token was checked. */
export function existing(account: Account | undefined): Account {
  if (!account) throw new Refusal("unauthorized", "the account of this token does not exist");
  return account;
}

function limitBrokenBy(letter: Letter, now: Millis): { refused: ErrorCode; message: string } | null {
  if (letter.body.byteLength > limits.messageBytes) {
    return { refused: "too-large", message: `body: ${letter.body.byteLength} bytes, the limit is ${limits.messageBytes}` };
  }
  return sendingLimitBrokenBy(letter, now);
}

/** The limit that a letter's settings break, if any; those of its callbacks too. */
export function sendingLimitBrokenBy(letter: Letter, now: Millis): { refused: ErrorCode; message: string } | null {
  if ((letter.delay ?? 0) > limits.delay) return over("delay", (letter.delay ?? 0) / 1000, limits.delay / 1000, "seconds");
  const ahead = (letter.notBefore ?? now) - now;
  if (ahead > limits.delay) return over("not-before", Math.round(ahead / 1000), limits.delay / 1000, "seconds from now");
  return settingsBrokenBy(letter) ?? callbackBrokenBy(letter.callback) ?? callbackBrokenBy(letter.failureCallback);
}

function callbackBrokenBy(callback: CallbackSettings | null): { refused: ErrorCode; message: string } | null {
  if (!callback) return null;
  return settingsBrokenBy(callback) ?? callbackBrokenBy(callback.callback) ?? callbackBrokenBy(callback.failureCallback);
}

function settingsBrokenBy(settings: SendSettings): { refused: ErrorCode; message: string } | null {
  const { retries, timeout } = settings;
  if ((retries ?? defaults.retries) > limits.retries) return over("retries", retries ?? 0, limits.retries, "");
  const headerBytes = settings.headers.reduce((sum, [name, value]) => sum + name.length + value.length, 0);
  if (headerBytes > limits.headerBytes) return over("headers", headerBytes, limits.headerBytes, "bytes");
  if ((timeout ?? defaults.timeout) > limits.timeout) return over("timeout", (timeout ?? 0) / 1000, limits.timeout / 1000, "seconds");
  return null;
}

const over = (name: string, value: number, limit: number, unit: string): { refused: ErrorCode; message: string } => ({
  refused: "limit-exceeded",
  message: `${name}: ${value}${unit && ` ${unit}`} asked for, the limit is ${limit}`,
});
