import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { crc32 } from "node:zlib";
import { StorageRefused } from "../store.ts";

/** Where the keys are that secrets are sealed with: in a file, in a setting, or nowhere. Plain data, for threads. */
export type KeySource = { file: string } | { ring: string } | null;

/** A key, and the version that stands before whatever it has sealed. */
export type RingKey = { version: number; key: Buffer };

/** Seals what is secret in a row, and opens it again. `of` names the row and the field: what was sealed for another one does not open. */
export type Seals = {
  /** Null: there are no keys, and it is kept in clear. */
  seal(value: unknown, of: string): string | null;
  /** Throws `StorageRefused` when there is no key for it, or another one. Values are remembered, and are not to be changed. */
  open(sealed: string, of: string): unknown;
};

const keyBytes = 32;
const nonceBytes = 12;
const tagBytes = 16;

/** So many opened values are remembered: each batch looks at the account of its messages. */
const mostRemembered = 2_000;

/** A new key of a ring, as `version:key`. */
export const newKeyLine = (version: number): string => `${version}:${randomBytes(keyBytes).toString("base64")}`;

/** The last line of a file of keys. It reads as a comment. */
const checksumLine = /^# checksum: ([0-9a-f]{8})$/m;

/** Returns the text of a file of keys with its checksum. */
export const withChecksum = (text: string): string => `${text}# checksum: ${checksumOf(text)}\n`;

const checksumOf = (text: string): string => crc32(text).toString(16).padStart(8, "0");

/** Throws `StorageRefused` if a text is not the one that its checksum was made of. One without a checksum passes: people write such files. */
function mustBeWhole(text: string, where: string): void {
  const found = checksumLine.exec(text);
  if (!found || checksumOf(text.replace(`${found[0]}\n`, "")) === found[1]) return;
  const ifEdited = `if you have edited it, take out its line "# checksum: ${found[1]}"`;
  throw new StorageRefused(`${where}: it is damaged, or was edited: its checksum does not match; restore it from a copy; ${ifEdited}`);
}

/**
 * Reads `2:…,1:…`, or the same line by line with comments after `#`. The first key seals, all of them open. `where`: what
 * errors call it. Throws `StorageRefused`.
 */
export function parseRing(text: string, where: string): readonly [RingKey, ...RingKey[]] {
  mustBeWhole(text, where);
  const written = text
    .replaceAll(/#.*/g, "")
    .split(/[\n,]/)
    .map((one) => one.trim())
    .filter(Boolean);
  const keys = written.map((one, index): RingKey => {
    const [, version, key = ""] = /^([1-9]\d{0,8}):([A-Za-z\d+/]{43}=)$/.exec(one) ?? [];
    // What stands there may be a secret, so it is not repeated.
    if (version === undefined)
      throw new StorageRefused(`${where}: key ${index + 1} is not of the form 1:<32 bytes in base64>; ${howToMake}`);
    return { version: Number(version), key: Buffer.from(key, "base64") };
  });
  const [first, ...others] = keys;
  if (!first) throw new StorageRefused(`${where}: there is no key in it; ${howToMake}`);
  if (new Set(keys.map(({ version }) => version)).size < keys.length) throw new StorageRefused(`${where}: two keys have the same version`);
  return [first, ...others];
}

const howToMake = "waypost keys new prints one";

/** The keys of a source as they are now. Throws `StorageRefused`. */
export function readRing(source: NonNullable<KeySource>): readonly [RingKey, ...RingKey[]] {
  return "ring" in source ? parseRing(source.ring, "WAYPOST_KEYS") : parseRing(readKeysFile(source.file), source.file);
}

function readKeysFile(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new StorageRefused(`${file}: the keys cannot be read (${why}); ${giveBack}`);
  }
}

const giveBack = "give back the keys that the secrets of this store were sealed with, from a copy";

/** The seals of a source. */
export const sealsOf = (source: KeySource): Seals => (source === null ? noSeals : new KeyRing(source));

/** Nothing is sealed. */
export const noSeals: Seals = {
  seal: () => null,
  open: (sealed) => {
    throw new StorageRefused(
      `keys: there are none, and secrets are sealed with key ${versionOf(sealed)}; set WAYPOST_KEYS or WAYPOST_KEYS_FILE`,
    );
  },
};

/** The version of the key that something was sealed with. */
export const versionOf = (sealed: string): number => Number(sealed.slice(0, sealed.indexOf(".")));

/** AES-256-GCM under the keys of a source. A file that was changed is noticed, by whichever thread or process has it open. */
class KeyRing implements Seals {
  readonly #source: NonNullable<KeySource>;
  #keys: readonly [RingKey, ...RingKey[]];
  #stamp: string;
  readonly #opened = new Map<string, unknown>();

  constructor(source: NonNullable<KeySource>) {
    this.#source = source;
    this.#stamp = this.#stampNow();
    this.#keys = readRing(source);
  }

  seal(value: unknown, of: string): string {
    this.#follow();
    const [{ version, key }] = this.#keys;
    const nonce = randomBytes(nonceBytes);
    const cipher = createCipheriv("aes-256-gcm", key, nonce, { authTagLength: tagBytes }).setAAD(boundTo(version, of));
    const hidden = Buffer.concat([cipher.update(JSON.stringify(value), "utf8"), cipher.final()]);
    return `${version}.${Buffer.concat([nonce, cipher.getAuthTag(), hidden]).toString("base64")}`;
  }

  open(sealed: string, of: string): unknown {
    const name = `${of}\n${sealed}`;
    const known = this.#opened.get(name);
    if (known !== undefined) return known;
    const value: unknown = JSON.parse(this.#clearOf(sealed, of));
    const [oldest] = this.#opened.keys();
    if (this.#opened.size >= mostRemembered && oldest !== undefined) this.#opened.delete(oldest);
    this.#opened.set(name, value);
    return value;
  }

  #clearOf(sealed: string, of: string): string {
    const version = versionOf(sealed);
    const bytes = Buffer.from(sealed.slice(sealed.indexOf(".") + 1), "base64");
    const [nonce, tag] = [bytes.subarray(0, nonceBytes), bytes.subarray(nonceBytes, nonceBytes + tagBytes)];
    try {
      const decipher = createDecipheriv("aes-256-gcm", this.#keyOf(version, of), nonce, { authTagLength: tagBytes });
      decipher.setAAD(boundTo(version, of)).setAuthTag(tag);
      return decipher.update(bytes.subarray(nonceBytes + tagBytes), undefined, "utf8") + decipher.final("utf8");
    } catch (error) {
      if (error instanceof StorageRefused) throw error;
      throw new StorageRefused(
        `keys: key ${version} does not open what was sealed for ${of}: it is another key, or the row was altered; ${giveBack}`,
      );
    }
  }

  #keyOf(version: number, of: string): Buffer {
    const find = (): Buffer | undefined => this.#keys.find((one) => one.version === version)?.key;
    const known = find();
    if (known) return known;
    this.#follow();
    const found = find();
    if (found) return found;
    throw new StorageRefused(`keys: there is no key ${version}, which sealed what belongs to ${of}; ${giveBack}`);
  }

  #follow(): void {
    const stamp = this.#stampNow();
    if (stamp === this.#stamp) return;
    this.#keys = readRing(this.#source);
    this.#stamp = stamp;
  }

  /** A file is replaced as a whole, so it is another one when it has changed. */
  #stampNow(): string {
    if (!("file" in this.#source)) return "";
    const found = statSync(this.#source.file, { bigint: true, throwIfNoEntry: false });
    return found ? `${found.ino} ${found.mtimeNs} ${found.size}` : "";
  }
}

const boundTo = (version: number, of: string): Buffer => Buffer.from(`waypost ${version} ${of}`);
