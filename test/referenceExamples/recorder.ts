import type { Route } from "../../src/api/route/route.ts";
import { routes } from "../../src/operations/routes.ts";
import { type Area, operator } from "../recording/area.ts";
import type { Answer, More, Session } from "../recording/session.ts";
import { createSimplifier } from "./simplify.ts";

/** A secret of Standard Webhooks that is used nowhere else. Examples show it shortened. */
export const webhookSecret = `whsec_${btoa("a secret of the examples")}`;

/** A request that was sent, and its response. A body that is JSON is parsed. */
export type Example = {
  request: { path: string; headers?: Record<string, string>; body?: unknown };
  /** `type`: the content type, unless it is JSON. */
  response: { status: number; type?: string; body?: unknown };
};

/** Examples by the method and the path of their operation, in the order of the OpenAPI document. */
export type Examples = Readonly<Record<string, Example>>;

/**
 * The parts of a request. `path` has the parameters of the path. `until`: repeats the request until this is
 * true. `tidy` returns the part of a response that is the same each time.
 */
type Parts = {
  path?: Record<string, string>;
  query?: Record<string, string | number | boolean>;
  headers?: Record<string, string>;
  body?: unknown;
  until?: (json: Answer["json"]) => boolean;
  tidy?: (body: Answer["json"]) => unknown;
};

/** Sends requests to a server, and keeps one request of each operation with its response. */
export class Recorder {
  readonly session: Session;
  readonly #startedAt = Date.now();
  readonly #examples = new Map<string, Example>();
  readonly #secrets = new Map<string, string>();

  constructor(session: Session) {
    this.session = session;
    this.hide(webhookSecret, "whsec_…");
  }

  /** Shows a secret under another name in all examples. */
  hide(secret: string, shown: string): void {
    this.#secrets.set(secret, shown).set(encodeURIComponent(secret), shown);
  }

  /** Sends a request of an operation, such as `GET /v2/queues/{name}`, which becomes its example. */
  async show(area: Area, operation: string, parts: Parts = {}): Promise<Answer> {
    const route = findRoute(operation);
    const path = fillPath(route.path, parts);
    const { headers = {}, body } = parts;
    const type = typeof body === "object" && { "content-type": "application/json" };
    const sent = { ...makeCredentials(route, area), headers: { ...type, ...headers }, body };
    const answer = await this.#sendUntil(`${route.method} ${path}`, sent, parts.until);
    const request = {
      path,
      ...(Object.keys(headers).length > 0 && { headers }),
      ...(body !== undefined && { body }),
    };
    this.keep(operation, { request, response: readResponse(answer, parts.tidy) });
    return answer;
  }

  async #sendUntil(what: string, sent: More, isExpected: Parts["until"]): Promise<Answer> {
    const givenUpAt = Date.now() + 60_000;
    for (;;) {
      const answer = await this.session.quietly(what, sent);
      if (!isExpected || isExpected(answer.json)) return answer;
      if (Date.now() > givenUpAt) throw new Error(`${what} still answers ${answer.text}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  /** Keeps the example of an operation. It must be the only one, and not of an error. */
  keep(operation: string, example: Example): void {
    if (this.#examples.has(operation)) throw new Error(`${operation} has two examples`);
    if (example.response.status >= 300)
      throw new Error(`${operation}: ${JSON.stringify(example.response.body)}`);
    this.#examples.set(operation, example);
  }

  /** Returns the examples without what differs between two recordings. */
  examples(): Examples {
    const places = { server: this.session.server, destination: this.session.destination.url };
    const simplify = createSimplifier({ ...places, secrets: this.#secrets, startedAt: this.#startedAt });
    return Object.fromEntries(
      routes.map(nameOperation).flatMap((name) => {
        const example = this.#examples.get(name);
        return example ? [[name, simplify(example)]] : [];
      }),
    );
  }
}

function readResponse(
  { status, headers, text, json }: Answer,
  tidy: Parts["tidy"] = (body: unknown) => body,
): Example["response"] {
  if (text === "") return { status };
  const [, type = ""] = headers.find(([name]) => name.toLowerCase() === "content-type") ?? [];
  return type.startsWith("application/json")
    ? { status, body: tidy(json) }
    : { status, type, body: tidy(text) };
}

const nameOperation = ({ method, path }: Route): string => `${method} ${path}`;

function findRoute(operation: string): Route {
  const found = routes.find((route) => nameOperation(route) === operation);
  if (!found) throw new Error(`there is no operation ${operation}`);
  return found;
}

/** Returns a path with its parameters and the query. A destination is not encoded. */
function fillPath(template: string, { path = {}, query = {} }: Parts): string {
  const filled = template.replace(/\{(\w+)\}/g, (_all, name: string) => {
    const value = path[name];
    if (value === undefined) throw new Error(`${template}: ${name} is missing`);
    return name === "destination" ? value : encodeURIComponent(value);
  });
  const parameters = Object.entries(query).map(([name, value]) => `${name}=${encodeURIComponent(value)}`);
  return parameters.length === 0 ? filled : `${filled}?${parameters.join("&")}`;
}

function makeCredentials({ access }: Route, { account }: Area): Pick<More, "token" | "basic"> {
  if (access === "operator") return operator;
  if (access === "account") return { basic: `${account.id}:${account.password}` };
  return { token: access === "token" ? account.token : null };
}
