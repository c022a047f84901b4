import type { Answer, Credentials, More, Session } from "./session.ts";
import { messageIdOf } from "./session.ts";
import { operatorPassword } from "./server.ts";

type AccountOptions = {
  limits?: Record<string, string | number | null>;
  plan?: string;
  standardWebhooks?: boolean;
};

/** A part of the script with its own account, so that its lists hold nothing else. */
export type Area = {
  session: Session;
  name: string;
  account: Credentials;
  /** The URL at the destination that answers in this way. */
  url(kind: string, label: string): string;
  /** The path with which to publish to that URL. */
  publishTo(kind: string, label: string): string;
  ask(method: string, path: string, more?: More): Promise<Answer>;
  /** Asks with a body of JSON. `what`: method and path. */
  json(what: string, body: unknown, more?: More): Promise<Answer>;
  /** Asks until the response is as expected; only that one is recorded. */
  eventually(path: string, isExpected: (json: Answer["json"]) => boolean): Promise<Answer>;
  /** Publishes, and waits until all messages have ended. */
  publish(path: string, more?: More): Promise<Answer>;
  /** Waits until `count` deliveries have arrived there, and the outcome of the last one is stored. */
  delivered(kind: string, label: string, count?: number): Promise<void>;
  /**
   * Waits until `count` deliveries of runs have arrived at a path, and the outcome of the last one is stored.
   */
  stepDelivered(path: string, count: number): Promise<void>;
};

/** The credentials of the operator. */
export const operator = { basic: `operator:${operatorPassword}` };

/** Makes an account for a part of the script. */
export async function startArea(session: Session, name: string, more: AccountOptions = {}): Promise<Area> {
  const made = await session.ask(`account of ${name}`, "POST /v2/admin/accounts", {
    ...operator,
    headers: { "content-type": "application/json" },
    body: { name, ...more },
  });
  if (made.status !== 200) throw new Error(`no account for ${name}: ${made.text}`);
  const account = made.json as Credentials;
  session.keepSecret(account.id, account.token, account.readOnlyToken, account.password);
  const pathOf = (kind: string, label: string): string => `/${kind}/${name}.${label}`;
  const token = account.token;
  const area: Area = {
    session,
    name,
    account,
    url: (kind, label) => session.destination.url + pathOf(kind, label),
    publishTo: (kind, label) => `/v2/publish/${area.url(kind, label)}`,
    ask: (method, path, given = {}) => session.ask(name, `${method} ${path}`, { token, ...given }),
    json: (what, body, given = {}) => {
      const headers = { "content-type": "application/json", ...given.headers };
      return session.ask(name, what, { token, ...given, body, headers });
    },
    eventually: (path, isExpected) => session.eventually(name, `GET ${path}`, { isExpected, token }),
    publish: async (path, given = {}) => {
      const answer = await area.ask("POST", path, given);
      for (const id of new Set(answer.text.match(/msg_\w+/g))) await session.settled(id, token);
      return answer;
    },
    delivered: async (kind, label, count = 1) => {
      const came = await session.destination.until(pathOf(kind, label), count);
      const arrival = came[count - 1];
      const id = arrival && messageIdOf(arrival);
      if (id !== undefined) await session.settled(id, token);
    },
    stepDelivered: async (path, count) => {
      const came = await session.destination.until(path, count);
      for (const arrival of came.slice(0, count)) {
        const id = messageIdOf(arrival);
        if (id !== undefined) await session.settled(id, token, "/v2/workflows/messageLogs");
      }
    },
  };
  return area;
}
