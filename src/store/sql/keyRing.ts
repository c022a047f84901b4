import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { crc32 } from "node:zlib";
import { StorageRefused } from "../store.ts";
import { BoundedMap } from "../../core/values/boundedMap.ts";

/** Where the keys are that secrets are sealed with: in a file, in a setting, or nowhere. Plain data, for threads. */
export type KeySource = { file: string } | { keyRing: string } | null;

/** A key, and the version that stands before whatever it has sealed. */
export type EncryptionKey = { version: number; key: Buffer };

/** Seals what is secret in a row, and opens it again. `of` names the row and the field: what was sealed for another one does not open. */
export type SecretCipher = {
  /** Null: there are no keys, and it is kept in clear. */
  encrypt(value: unknown, subject: string): string | null;
  /** Throws `StorageRefused` when there is no key for it, or another one. Values are remembered, and are not to be changed. */
  decrypt(encrypted: string, subject: string): unknown;
};

const keyBytes = 32;
const nonceBytes = 12;
const tagBytes = 16;

/** So many opened values are remembered: each batch looks at the account of its messages. */
const maxCached = 2_000;

/** A new key of a ring, as `version:key`. */
export const makeKeyLine = (version: number): string => `${version}:${randomBytes(keyBytes).toString("base64")}`;

/** The last line of a file of keys. It reads as a comment. */
const checksumLine = /^# checksum: ([0-9a-f]{8})$/m;

/** Returns the text of a file of keys with its checksum. */
export const withChecksum = (text: string): string => `${text}# checksum: ${computeChecksum(text)}\n`;

const computeChecksum = (text: string): string => crc32(text).toString(16).padStart(8, "0");

/** Throws `StorageRefused` if a text is not the one that its checksum was made of. One without a checksum passes: people write such files. */
function verifyChecksum(text: string, where: string): void {
  const found = checksumLine.exec(text);
  if (!found || computeChecksum(text.replace(`${found[0]}\n`, "")) === found[1]) return;
  const ifEdited = `if you have edited it, take out its line "# checksum: ${found[1]}"`;
  throw new StorageRefused(`${where}: it is damaged, or was edited: its checksum does not match; restore it from a copy; ${ifEdited}`);
}

/**
 * Reads `2:…,1:…`, or the same line by line with comments after `#`. The first key seals, all of them open. `where`: what
 * errors call it. Throws `StorageRefused`.
 */
export function parseKeyRing(text: string, where: string): readonly [EncryptionKey, ...EncryptionKey[]] {
  verifyChecksum(text, where);
  const items = text
    .replaceAll(/#.*/g, "")
    .split(/[\n,]/)
    .map((item) => item.trim())
    .filter(Boolean);
  const keys = items.map((item, index): EncryptionKey => {
    const [, version, key = ""] = /^([1-9]\d{0,8}):([A-Za-z\d+/]{43}=)$/.exec(item) ?? [];
    // What stands there may be a secret, so it is not repeated.
    if (version === undefined)
      throw new StorageRefused(`${where}: key ${index + 1} is not of the form 1:<32 bytes in base64>; ${makeKeyHint}`);
    return { version: Number(version), key: Buffer.from(key, "base64") };
  });
  const [first, ...others] = keys;
  if (!first) throw new StorageRefused(`${where}: there is no key in it; ${makeKeyHint}`);
  if (new Set(keys.map(({ version }) => version)).size < keys.length) throw new StorageRefused(`${where}: two keys have the same version`);
  return [first, ...others];
}

const makeKeyHint = "waypost keys new prints one";

/** The keys of a source as they are now. Throws `StorageRefused`. */
export function readKeyRing(source: NonNullable<KeySource>): readonly [EncryptionKey, ...EncryptionKey[]] {
  return "keyRing" in source ? parseKeyRing(source.keyRing, "WAYPOST_KEYS") : parseKeyRing(readKeysFile(source.file), source.file);
}

function readKeysFile(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new StorageRefused(`${file}: the keys cannot be read (${why}); ${restoreKeysHint}`);
  }
}

const restoreKeysHint = "give back the keys that the secrets of this store were sealed with, from a copy";

/** The seals of a source. */
export const createCipher = (source: KeySource): SecretCipher => (source === null ? plaintextCipher : new KeyRingCipher(source));

/** Nothing is sealed. */
export const plaintextCipher: SecretCipher = {
  encrypt: () => null,
  decrypt: (sealed) => {
    throw new StorageRefused(
      `keys: there are none, and secrets are sealed with key ${parseKeyVersion(sealed)}; set WAYPOST_KEYS or WAYPOST_KEYS_FILE`,
    );
  },
};

/** The version of the key that something was sealed with. */
export const parseKeyVersion = (encrypted: string): number => Number(encrypted.slice(0, encrypted.indexOf(".")));

/** AES-256-GCM under the keys of a source. A file that was changed is noticed, by whichever thread or process has it open. */
class KeyRingCipher implements SecretCipher {
  readonly #source: NonNullable<KeySource>;
  #keys: readonly [EncryptionKey, ...EncryptionKey[]];
  #fileStamp: string;
  readonly #decrypted = new BoundedMap<string, unknown>(maxCached);

  constructor(source: NonNullable<KeySource>) {
    this.#source = source;
    this.#fileStamp = this.#readFileStamp();
    this.#keys = readKeyRing(source);
  }

  encrypt(value: unknown, subject: string): string {
    this.#reloadIfChanged();
    const [{ version, key }] = this.#keys;
    const nonce = randomBytes(nonceBytes);
    const cipher = createCipheriv("aes-256-gcm", key, nonce, { authTagLength: tagBytes }).setAAD(toAssociatedData(version, subject));
    const hidden = Buffer.concat([cipher.update(JSON.stringify(value), "utf8"), cipher.final()]);
    return `${version}.${Buffer.concat([nonce, cipher.getAuthTag(), hidden]).toString("base64")}`;
  }

  decrypt(encrypted: string, subject: string): unknown {
    const name = `${subject}\n${encrypted}`;
    const known = this.#decrypted.get(name);
    if (known !== undefined) return known;
    const value: unknown = JSON.parse(this.#decryptText(encrypted, subject));
    this.#decrypted.set(name, value);
    return value;
  }

  #decryptText(encrypted: string, subject: string): string {
    const version = parseKeyVersion(encrypted);
    const bytes = Buffer.from(encrypted.slice(encrypted.indexOf(".") + 1), "base64");
    const nonce = bytes.subarray(0, nonceBytes);
    const tag = bytes.subarray(nonceBytes, nonceBytes + tagBytes);
    try {
      const decipher = createDecipheriv("aes-256-gcm", this.#findKey(version, subject), nonce, { authTagLength: tagBytes });
      decipher.setAAD(toAssociatedData(version, subject)).setAuthTag(tag);
      return decipher.update(bytes.subarray(nonceBytes + tagBytes), undefined, "utf8") + decipher.final("utf8");
    } catch (error) {
      if (error instanceof StorageRefused) throw error;
      throw new StorageRefused(
        `keys: key ${version} does not open what was sealed for ${subject}: it is another key, or the row was altered; ${restoreKeysHint}`,
      );
    }
  }

  #findKey(version: number, subject: string): Buffer {
    const find = (): Buffer | undefined => this.#keys.find((candidate) => candidate.version === version)?.key;
    const known = find();
    if (known) return known;
    this.#reloadIfChanged();
    const found = find();
    if (found) return found;
    throw new StorageRefused(`keys: there is no key ${version}, which sealed what belongs to ${subject}; ${restoreKeysHint}`);
  }

  #reloadIfChanged(): void {
    const stamp = this.#readFileStamp();
    if (stamp === this.#fileStamp) return;
    this.#keys = readKeyRing(this.#source);
    this.#fileStamp = stamp;
  }

  /** A file is replaced as a whole, so it is another one when it has changed. */
  #readFileStamp(): string {
    if (!("file" in this.#source)) return "";
    const found = statSync(this.#source.file, { bigint: true, throwIfNoEntry: false });
    return found ? `${found.ino} ${found.mtimeNs} ${found.size}` : "";
  }
}

const toAssociatedData = (version: number, subject: string): Buffer => Buffer.from(`waypost ${version} ${subject}`);
