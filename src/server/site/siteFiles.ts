import type { IncomingMessage, ServerResponse } from "node:http";
import { brotliDecompressSync } from "node:zlib";
import { cachedForever, plainText, sendBuilt, takesEncoding } from "../../api/http/builtFile.ts";
import { readRequestId } from "../../api/http/requestId.ts";
import { splitTarget } from "../../api/http/target.ts";
import type { RequestLine } from "../../api/route/requestLog.ts";
import type { SiteFile, SiteIndex, SitePack } from "./sitePack.ts";

const notBuilt =
  "The documentation is not built. Run: npm run build:site\n" +
  "Then restart the server. The same pages are in docs/.\n";

/**
 * Returns the content security policy of the site. The framework makes elements from the built texts through
 * the policy `vue`.
 */
const makePolicy = (inlineScripts: readonly string[]): string =>
  [
    "default-src 'none'",
    `script-src ${["'self'", ...inlineScripts].join(" ")}`,
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "font-src 'self'",
    "form-action 'none'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types vue",
  ].join("; ");

/** Responds to requests below `/docs` with the built documentation. It is the same for everybody. */
export class SiteFiles {
  readonly #pack: SitePack | null;
  readonly #policy: string;
  readonly #unpacked = new Map<SiteFile, Buffer>();
  readonly #log: (status: number, line: () => RequestLine) => void;

  constructor(pack: SitePack | null, log: (status: number, line: () => RequestLine) => void) {
    this.#pack = pack;
    this.#policy = makePolicy(pack?.index.inlineScripts ?? []);
    this.#log = log;
  }

  /** Responds to a request and returns true. Returns false if the request is not for the documentation. */
  answer(request: IncomingMessage, response: ServerResponse): boolean {
    const { method = "", url = "" } = request;
    if ((method !== "GET" && method !== "HEAD") || !url.startsWith("/docs")) return false;
    const { path } = splitTarget(url);
    if (!/^\/docs(\/|$)/.test(path)) return false;
    const status = this.#tryToRespond(path.slice("/docs".length), request, response);
    const requestId = readRequestId(request.rawHeaders);
    this.#log(status, () => ({ requestId, method, path, status, ms: 0, account: null }));
    return true;
  }

  /** The disk may fail, or the file may be replaced, while the server runs. Nothing else must stop by it. */
  #tryToRespond(path: string, request: IncomingMessage, response: ServerResponse): number {
    try {
      return this.#respond(path, request, response);
    } catch {
      const body = Buffer.from("The documentation cannot be read. Restart the server.\n");
      return sendBuilt(response, { status: 503, policy: this.#policy, headers: plainText, body });
    }
  }

  #respond(path: string, request: IncomingMessage, response: ServerResponse): number {
    const policy = this.#policy;
    if (path === "")
      return sendBuilt(response, { status: 308, policy, headers: { Location: "docs/" }, body: null });
    if (this.#pack === null)
      return sendBuilt(response, { status: 503, policy, headers: plainText, body: Buffer.from(notBuilt) });
    const found = this.#find(path.slice(1));
    const file = found ?? this.#find("404.html");
    if (!file) throw new Error("the documentation has no page for paths that do not exist");
    const keepsPacked = file.isPacked && takesEncoding(request.headers["accept-encoding"], "br");
    const headers = {
      "Content-Type": file.type,
      // Names of files under `assets/` contain a hash of their content.
      "Cache-Control": found && path.startsWith("/assets/") ? cachedForever : "no-cache",
      Vary: "Accept-Encoding",
      ...(keepsPacked && { "Content-Encoding": "br" }),
    };
    const status = found ? 200 : 404;
    if (request.method === "HEAD") {
      const size = keepsPacked ? file.length : file.size;
      return sendBuilt(response, { status, policy, headers, body: null, size });
    }
    const body = keepsPacked || !file.isPacked ? this.#pack.read(file) : this.#unpack(this.#pack, file);
    return sendBuilt(response, { status, policy, headers, body });
  }

  /** Unpacks a file once for all requests. In total, that is the size of the site: about 11 MB. */
  #unpack(pack: SitePack, file: SiteFile): Buffer {
    const kept = this.#unpacked.get(file) ?? brotliDecompressSync(pack.read(file));
    this.#unpacked.set(file, kept);
    return kept;
  }

  /** Returns a file, or the page of a path without `.html`. */
  #find(path: string): SiteFile | undefined {
    const files: SiteIndex["files"] = this.#pack?.index.files ?? {};
    const names = path === "" || path.endsWith("/") ? [`${path}index.html`] : [path, `${path}.html`];
    return names.map((name) => (Object.hasOwn(files, name) ? files[name] : undefined)).find(Boolean);
  }
}
