import { existsSync, openSync, readSync } from "node:fs";

/**
 * A file of the site in a pack: its type, its size in bytes, where its bytes are in the pack, and whether
 * they are compressed with Brotli there.
 */
export type SiteFile = { type: string; size: number; start: number; length: number; isPacked: boolean };

/**
 * The index of a pack. `inlineScripts`: the hashes of the scripts within the pages, as a content security
 * policy names them.
 */
export type SiteIndex = { inlineScripts: readonly string[]; files: Readonly<Record<string, SiteFile>> };

/** A file to pack. `path` is its path in the site, such as `guides/queues.html`. */
export type UnpackedFile = Omit<SiteFile, "start" | "length"> & { path: string; body: Buffer };

/**
 * Returns the bytes of a pack: the length of its index in 4 bytes (big-endian), the index as JSON, and the
 * bytes of the files.
 */
export function packSite(inlineScripts: readonly string[], unpacked: readonly UnpackedFile[]): Buffer {
  const files: Record<string, SiteFile> = {};
  let start = 0;
  for (const { path, body, ...described } of unpacked) {
    files[path] = { ...described, start, length: body.length };
    start += body.length;
  }
  const index = Buffer.from(JSON.stringify({ inlineScripts, files } satisfies SiteIndex));
  const length = Buffer.alloc(4);
  length.writeUInt32BE(index.length);
  return Buffer.concat([length, index, ...unpacked.map(({ body }) => body)]);
}

/** Reads bytes of a pack. */
export type ReadBytes = (start: number, length: number) => Buffer;

/** A pack that is open: its index, and a function that reads the bytes of a file. */
export type SitePack = { index: SiteIndex; read(file: SiteFile): Buffer };

/** Reads the index of a pack. Throws if it is damaged. */
export function openPack(read: ReadBytes): SitePack {
  const length = read(0, 4).readUInt32BE();
  const index = JSON.parse(read(4, length).toString()) as SiteIndex;
  return { index, read: (file) => read(4 + length + file.start, file.length) };
}

/**
 * Opens a pack in a file. Null: the file does not exist. The file stays open, and a page is read when it is
 * requested: the whole site in memory would take some megabytes in every server.
 */
export function openPackFile(path: string): SitePack | null {
  if (!existsSync(path)) return null;
  const file = openSync(path, "r");
  return openPack((position, length) => {
    const bytes = Buffer.alloc(length);
    const read = readSync(file, bytes, { position });
    if (read < length) throw new Error(`${path}: ends early; build it again`);
    return bytes;
  });
}
