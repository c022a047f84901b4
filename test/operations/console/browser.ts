import type { Reply, TestServer } from "../../api/testServer.ts";

type Sent = { body?: unknown; headers?: Record<string, string> };

/** A browser with the console open: it keeps the cookies and says which page sends a request. */
export class TestBrowser {
  readonly #server: TestServer;
  readonly #headers: Record<string, string>;
  /** The cookies by name. */
  readonly cookies = new Map<string, string>();

  constructor(server: TestServer, headers: Record<string, string> = {}) {
    this.#server = server;
    this.#headers = { host: "127.0.0.1:8080", "sec-fetch-site": "same-origin", ...headers };
  }

  /** Sends a request with the cookies. A header that is an empty text is not sent. */
  async send(method: string, url: string, { body, headers = {} }: Sent = {}): Promise<Reply> {
    const cookie = [...this.cookies].map(([name, value]) => `${name}=${value}`).join("; ");
    const all = { ...this.#headers, ...(cookie && { cookie }), ...headers };
    const sent = Object.fromEntries(Object.entries(all).filter(([, value]) => value !== ""));
    const reply = await this.#server.ask(method, url, {
      token: null,
      headers: sent,
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    for (const line of [reply.headers["set-cookie"] ?? []].flat() as string[]) {
      const [, name = "", value = ""] = /^([^=]+)=([^;]*)/.exec(line) ?? [];
      if (value === "") this.cookies.delete(name);
      else this.cookies.set(name, value);
    }
    return reply;
  }

  logIn(given: Record<string, string>, headers: Record<string, string> = {}): Promise<Reply> {
    return this.send("POST", "/console/session", { body: given, headers });
  }
}
