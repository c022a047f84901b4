import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { crc32 } from "node:zlib";
import { StorageRefused } from "./storageErrors.ts";
import { BoundedMap } from "../../core/caches/boundedMap.ts";

/**
 * Where the keys that encrypt secrets are: in a file, in a setting, or nowhere. It is plain data, so that it
 * can be passed to threads.
 */
export type KeySource = { file: string } | { keyRing: string } | null;

/** A key and its version. The version prefixes everything that the key has encrypted. */
export type EncryptionKey = { version: number; key: Buffer };

/**
 * Encrypts and decrypts the secrets of a row. `subject` names the row and the field. A secret can be
 * decrypted only with the subject for which it was encrypted.
 */
export type SecretCipher = {
  /** Returns null if there are no keys, so that the value is stored unencrypted. */
  encrypt(value: unknown, subject: string): string | null;
  /**
   * Throws `StorageRefused` if the key is missing, or if it is not the key that encrypted the value.
   * Decrypted values are cached and must not be changed.
   */
  decrypt(encrypted: string, subject: string): unknown;
};

const keyBytes = 32;
const nonceBytes = 12;
const tagBytes = 16;

/** At most this many decrypted values are cached, because each batch reads the accounts of its messages. */
const maxCached = 2_000;

/** A longer value is content, which is seldom read twice. */
const longestCached = 64 * 1024;

/** Returns a new key as a line of a key file: `version:key`. */
export const makeKeyLine = (version: number): string =>
  `${version}:${randomBytes(keyBytes).toString("base64")}`;

/** The last line of a key file, in the form of a comment. */
const checksumLine = /^# checksum: ([0-9a-f]{8})$/m;

/** Returns the text of a key file with its checksum. */
export const withChecksum = (text: string): string => `${text}# checksum: ${computeChecksum(text)}\n`;

const computeChecksum = (text: string): string => crc32(text).toString(16).padStart(8, "0");

/**
 * Throws `StorageRefused` if a string does not match its checksum. A string without a checksum is accepted,
 * because people write such files.
 */
function verifyChecksum(text: string, where: string): void {
  const found = checksumLine.exec(text);
  if (!found || computeChecksum(text.replace(`${found[0]}\n`, "")) === found[1]) return;
  const ifEdited = `if you edited it, remove its line "# checksum: ${found[1]}"`;
  throw new StorageRefused(
    `${where}: damaged or edited, its checksum does not match; restore it from a copy, or ${ifEdited}`,
  );
}

/**
 * Parses keys in the form `2:…,1:…`, or one per line with comments after `#`. The first key encrypts, and all
 * keys decrypt. `where` is the name of the source in errors. Throws `StorageRefused` if the text is invalid.
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
    // The item may be a secret, so the error does not repeat it.
    if (version === undefined)
      throw new StorageRefused(
        `${where}: key ${index + 1} is invalid; use the form 1:<32 bytes in base64>; ${makeKeyHint}`,
      );
    return { version: Number(version), key: Buffer.from(key, "base64") };
  });
  const [first, ...others] = keys;
  if (!first) throw new StorageRefused(`${where}: contains no key; ${makeKeyHint}`);
  if (new Set(keys.map(({ version }) => version)).size < keys.length)
    throw new StorageRefused(`${where}: two keys have the same version; give each key its own version`);
  return [first, ...others];
}

const makeKeyHint = '"waypost keys new" prints a new key';

/** Returns the current keys of a source. Throws `StorageRefused` if they cannot be read or are invalid. */
export function readKeyRing(source: NonNullable<KeySource>): readonly [EncryptionKey, ...EncryptionKey[]] {
  return "keyRing" in source
    ? parseKeyRing(source.keyRing, "WAYPOST_KEYS")
    : parseKeyRing(readKeysFile(source.file), source.file);
}

function readKeysFile(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new StorageRefused(`${file}: cannot be read (${why}); ${restoreKeysHint}`);
  }
}

const restoreKeysHint = "restore the keys of this store from a copy";

/** Returns the cipher of a source. */
export const createCipher = (source: KeySource): SecretCipher =>
  source === null ? plaintextCipher : new KeyRingCipher(source);

/** A cipher without keys, which leaves secrets unencrypted. */
export const plaintextCipher: SecretCipher = {
  encrypt: () => null,
  decrypt: (sealed) => {
    throw new StorageRefused(
      `keys: missing, but secrets are encrypted with key ${parseKeyVersion(sealed)}; ` +
        "set WAYPOST_KEYS or WAYPOST_KEYS_FILE",
    );
  },
};

/** Returns the version of the key that encrypted a value. */
export const parseKeyVersion = (encrypted: string): number =>
  Number(encrypted.slice(0, encrypted.indexOf(".")));

/**
 * Encrypts with AES-256-GCM and the keys of a source. Each thread and process reads the key file again after
 * it has changed.
 */
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
    const cipher = createCipheriv("aes-256-gcm", key, nonce, { authTagLength: tagBytes }).setAAD(
      toAssociatedData(version, subject),
    );
    const hidden = Buffer.concat([cipher.update(JSON.stringify(value), "utf8"), cipher.final()]);
    return `${version}.${Buffer.concat([nonce, cipher.getAuthTag(), hidden]).toString("base64")}`;
  }

  decrypt(encrypted: string, subject: string): unknown {
    const name = `${subject}\n${encrypted}`;
    const known = this.#decrypted.get(name);
    if (known !== undefined) return known;
    const value: unknown = JSON.parse(this.#decryptText(encrypted, subject));
    if (encrypted.length <= longestCached) this.#decrypted.set(name, value);
    return value;
  }

  #decryptText(encrypted: string, subject: string): string {
    const version = parseKeyVersion(encrypted);
    const bytes = Buffer.from(encrypted.slice(encrypted.indexOf(".") + 1), "base64");
    const nonce = bytes.subarray(0, nonceBytes);
    const tag = bytes.subarray(nonceBytes, nonceBytes + tagBytes);
    try {
      const decipher = createDecipheriv("aes-256-gcm", this.#findKey(version, subject), nonce, {
        authTagLength: tagBytes,
      });
      decipher.setAAD(toAssociatedData(version, subject)).setAuthTag(tag);
      return (
        decipher.update(bytes.subarray(nonceBytes + tagBytes), undefined, "utf8") + decipher.final("utf8")
      );
    } catch (error) {
      if (error instanceof StorageRefused) throw error;
      throw new StorageRefused(
        `keys: key ${version} cannot decrypt ${subject}: the key differs, or the row was altered; ` +
          restoreKeysHint,
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
    throw new StorageRefused(`keys: key ${version} is missing; it encrypted ${subject}; ${restoreKeysHint}`);
  }

  #reloadIfChanged(): void {
    const stamp = this.#readFileStamp();
    if (stamp === this.#fileStamp) return;
    this.#keys = readKeyRing(this.#source);
    this.#fileStamp = stamp;
  }

  /** A key file is replaced as a whole, so a changed file has a different inode, time or size. */
  #readFileStamp(): string {
    if (!("file" in this.#source)) return "";
    const found = statSync(this.#source.file, { bigint: true, throwIfNoEntry: false });
    return found ? `${found.ino} ${found.mtimeNs} ${found.size}` : "";
  }
}

const toAssociatedData = (version: number, subject: string): Buffer =>
  Buffer.from(`waypost ${version} ${subject}`);
