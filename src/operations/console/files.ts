import type { IncomingMessage, ServerResponse } from "node:http";
import type { RequestLine } from "../../api/route/requestLog.ts";
import { readRequestId } from "../../api/http/requestId.ts";
import type { BuiltResponse } from "../../api/http/builtFile.ts";
import { cachedForever, plainText, sendBuilt, takesEncoding } from "../../api/http/builtFile.ts";
import { splitTarget } from "../../api/http/target.ts";

/**
 * A built file of the console, and its compressed forms. In a bundle, a form is made when it is read first.
 */
export type ConsoleFile = {
  readonly type: string;
  readonly body: Buffer;
  readonly br?: Buffer;
  readonly gzip?: Buffer;
};

/**
 * The built files by path within the console, such as `index.html` and `assets/app-1a2b.js`. Null if the
 * console has not been built.
 */
export type BuiltConsole = ReadonlyMap<string, ConsoleFile> | null;

const contentSecurityPolicy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "font-src 'self'",
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join("; ");

/**
 * The number of parts in the path of a page. Each part makes the response a little longer than the page, so a
 * path with any number of parts would be answered with many times its size.
 */
const maxParts = 20;

const notBuilt =
  "The console is not built. Run: npm run build:console\n" +
  "Then restart the server. --console off turns the console off.\n";

/**
 * Responds to requests for the files of the console, from memory. The files contain nothing of any account,
 * so they need no session. Every path that is not a file is a page of the console and gets `index.html`. A
 * browser that opens `/` is redirected to the console, if it has been built.
 */
export class ConsoleFiles {
  readonly #built: BuiltConsole;
  readonly #log: (status: number, line: () => RequestLine) => void;

  constructor(built: BuiltConsole, log: (status: number, line: () => RequestLine) => void) {
    this.#built = built;
    this.#log = log;
  }

  /** Whether there is a console. Otherwise the pages say how to build it. */
  get isBuilt(): boolean {
    return this.#built !== null;
  }

  /** Responds to a request and returns true. Returns false if the request is not for the console. */
  answer(request: IncomingMessage, response: ServerResponse): boolean {
    const { method = "", url = "" } = request;
    if ((method !== "GET" && method !== "HEAD") || !/^\/(console|\?|$)/.test(url)) return false;
    const { path } = splitTarget(url);
    const isRoot = path === "/" && this.#built !== null && takesHtml(request);
    if (!isRoot && (!/^\/console(\/|$)/.test(path) || path === "/console/session")) return false;
    const status = isRoot
      ? send(response, { status: 302, headers: { Location: "console/", ...notKept }, body: null })
      : this.#respond(path.slice("/console".length), request, response);
    const requestId = readRequestId(request.rawHeaders);
    this.#log(status, () => ({ requestId, method, path, status, ms: 0, account: null }));
    return true;
  }

  #respond(path: string, request: IncomingMessage, response: ServerResponse): number {
    // The location is relative, so it stays below the prefix of a reverse proxy.
    if (path === "") return send(response, { status: 308, headers: { Location: "console/" }, body: null });
    if (this.#built === null)
      return send(response, { status: 503, headers: plainText, body: Buffer.from(notBuilt) });
    const file = this.#built.get(path.slice(1));
    if (file && path !== "/index.html") return this.#sendFile(file, path, { request, response });
    if (path.startsWith("/assets/") || path.split("/", maxParts + 2).length > maxParts + 1)
      return send(response, {
        status: 404,
        headers: plainText,
        body: Buffer.from("This file does not exist.\n"),
      });
    return this.#sendPage(path, response);
  }

  #sendFile(file: ConsoleFile, path: string, { request, response }: Exchange): number {
    const { body, encoding } = chooseForm(file, request.headers["accept-encoding"]);
    const headers = {
      "Content-Type": file.type,
      // Names of files under `assets/` contain a hash of their content.
      "Cache-Control": path.startsWith("/assets/") ? cachedForever : "no-cache",
      Vary: "Accept-Encoding",
      ...(encoding && { "Content-Encoding": encoding }),
    };
    return send(response, { status: 200, headers, body });
  }

  /** Sends `index.html`. Its files are named relative to the page, so that any prefix works. */
  #sendPage(path: string, response: ServerResponse): number {
    const index = this.#built?.get("index.html")?.body.toString() ?? "";
    const up = "../".repeat(path.split("/").length - 2);
    const body = Buffer.from(index.replaceAll(/((?:src|href)=")\.\//g, `$1${up === "" ? "./" : up}`));
    const headers = { "Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store" };
    return send(response, { status: 200, headers, body });
  }
}

/** Reports whether a request is that of a person's browser for a page. Programs do not ask for HTML. */
const takesHtml = ({ headers: { accept = "" } }: IncomingMessage): boolean =>
  /(^|[\s,])text\/html\s*($|[,;])/i.test(accept);

const notKept = { "Cache-Control": "no-store", Vary: "Accept" };

type Exchange = { request: IncomingMessage; response: ServerResponse };

function chooseForm(
  file: ConsoleFile,
  accepted?: string | string[],
): { body: Buffer; encoding: string | null } {
  if (file.br && takesEncoding(accepted, "br")) return { body: file.br, encoding: "br" };
  if (file.gzip && takesEncoding(accepted, "gzip")) return { body: file.gzip, encoding: "gzip" };
  return { body: file.body, encoding: null };
}

const send = (response: ServerResponse, sent: Omit<BuiltResponse, "policy">): number =>
  sendBuilt(response, { ...sent, policy: contentSecurityPolicy });
