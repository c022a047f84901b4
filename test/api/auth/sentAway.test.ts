import { describe, expect, test } from "vitest";
import { z } from "zod";
import type { Delivery } from "../../../src/engine/core/model/delivery.ts";
import type { Route } from "../../../src/api/route/route.ts";
import { requiredVerb } from "../../../src/api/route/route.ts";
import { routes } from "../../../src/operations/routes.ts";
import { createTestServer } from "../testServer.ts";
import type { TestServer } from "../testServer.ts";
import type { RequestParts, Possessions } from "../routes/accounts/possessions.ts";
import { sendRequest, createPossessions, makeRequest } from "../routes/accounts/possessions.ts";

// A token without the right to read calls every route, with a URL of the attacker in every place that takes
// one. Then the account's normal traffic continues. Data that the account has stored must be in no response,
// and must not arrive at that URL.

const mark = "markofhers";
const thief = "https://e.example";
const callback = `${thief}/callback`;
const failureCallback = `${thief}/failure`;

type Variant = { name: string; change(asked: RequestParts, she: Possessions): RequestParts };
type Json = {
  properties?: Record<string, Json>;
  items?: Json;
  anyOf?: Json[];
  additionalProperties?: Json | boolean;
  type?: string;
};

const withHeaders = (name: string, headers: Record<string, string>): Variant => ({
  name,
  change: (asked) => ({ ...asked, headers: { ...asked.headers, ...headers } }),
});

/** Returns the variants of a route with a setting that names a URL. */
function ofSettings({ settings }: Route): Variant[] {
  if (settings === undefined) return [];
  const failing = withHeaders("a failure callback", { "svc-failure-callback": failureCallback });
  return [
    failing,
    ...(settings === "resume" ? [] : [withHeaders("a callback", { "svc-callback": callback })]),
  ];
}

/** Returns a value with the URL in it for a field that could take one, or undefined. */
function urlFor(field: string, schema: Json): unknown {
  if (schema.anyOf) return schema.anyOf.map((one) => urlFor(field, one)).find((one) => one !== undefined);
  if (schema.items) return ((one) => (one === undefined ? undefined : [one]))(urlFor(field, schema.items));
  if (schema.properties) {
    const found = Object.entries(schema.properties).map(([name, one]) => [name, urlFor(name, one)] as const);
    return found.every(([, value]) => value === undefined)
      ? undefined
      : Object.fromEntries(found.filter(([, value]) => value !== undefined));
  }
  // Settings as headers.
  if (typeof schema.additionalProperties === "object")
    return { "Svc-Callback": callback, "Svc-Failure-Callback": failureCallback };
  return /url|destination|callback|endpoint/i.test(field) && schema.type === "string"
    ? `${thief}/${field}`
    : undefined;
}

/** Returns a variant of a route for each field of the body that could name a URL. */
function ofBody({ body }: Route): Variant[] {
  if (body?.contentType !== "application/json") return [];
  const schema = z.toJSONSchema(body.schema, { io: "input", unrepresentable: "any" }) as Json;
  const fields = (schema.items ?? schema).properties ?? {};
  return Object.entries(fields).flatMap(([field, one]): Variant[] => {
    const value = urlFor(field, one);
    if (value === undefined) return [];
    const put = (item: object) => ({ ...item, [field]: value });
    const change = (asked: RequestParts): RequestParts => {
      const given: unknown = JSON.parse(asked.body ?? "{}");
      return { ...asked, body: JSON.stringify(Array.isArray(given) ? given.map(put) : put(given as object)) };
    };
    return [{ name: `the field ${field}`, change }];
  });
}

const settingsToGroup: readonly (readonly [name: string, headers: Record<string, string>])[] = [
  ["a callback", { "svc-callback": callback }],
  ["a failure callback", { "svc-failure-callback": failureCallback }],
];
const toGroup = settingsToGroup.map(([name, headers]): Variant => ({
  name: `a URL group and ${name}`,
  change: (asked, { ids }) => ({
    ...asked,
    url: asked.url.replace(/https:.*/, ids.group),
    headers: { ...asked.headers, ...headers },
  }),
}));

const variantsOf = (row: Route): Variant[] => [
  { name: "nothing else", change: (asked) => asked },
  ...ofSettings(row),
  ...ofBody(row),
  ...(/\/(publish|enqueue|schedules)\/.*\{destination\}$/.test(row.path) ? toGroup : []),
];

const cases = routes
  .filter((row) => row.access === "token" && requiredVerb(row) !== "read")
  .flatMap((row) =>
    variantsOf(row).map((variant) => ({
      row,
      variant,
      name: `${row.method} ${row.path} with ${variant.name}`,
    })),
  );

/** Returns everything that is sent in a year in which the account's group, source and schedules are used. */
async function yearOf(
  server: TestServer,
  { ids, token, url }: Possessions,
  status: number,
): Promise<Delivery[]> {
  const sent: Delivery[] = [];
  await server.ask("POST", `/v2/publish/${ids.group}`, {
    token,
    body: mark,
    headers: { "svc-forward-x": mark },
  });
  await server.ask("POST", `/v2/in/${ids.secret}`, { token: null, body: mark });
  for (let days = 0; days < 12; days++) {
    server.clock.now += 86_400_000 * (days === 0 ? 366 : 1);
    await server.store.execute("claim", { limit: 1_000 });
    for (const delivery of server.deliveries.splice(0)) {
      sent.push(delivery);
      const isTheirs = delivery.message.url.startsWith(thief);
      await server.settle(delivery, {
        status: isTheirs ? 200 : status,
        body: Buffer.from(isTheirs ? "theirs" : mark),
      });
    }
  }
  expect(sent.filter(({ message }) => message.url.startsWith(url)).length).toBeGreaterThan(2);
  return sent;
}

/** Returns a string together with the decoded form of its base64 parts. */
const opened = (text: string): string =>
  text +
  (text.match(/[\w+/]{12,}=*/g) ?? []).map((one) => Buffer.from(one, "base64").toString("latin1")).join("\n");

async function serverWithToken(): Promise<{ server: TestServer; she: Possessions; blind: string }> {
  const server = await createTestServer();
  const she = await createPossessions(server, "acc_a", mark);
  const headers = { "Svc-Forward-Authorization": mark };
  await server.ask("PATCH", `/v2/topics/${she.ids.group}`, {
    token: she.token,
    body: JSON.stringify({ headers }),
  });
  await server.ask("PATCH", `/v2/sources/${she.ids.sourceId}`, {
    token: she.token,
    body: JSON.stringify({ settings: headers }),
  });
  await server.ask("POST", `/v2/schedules/${she.ids.group}`, {
    token: she.token,
    body: mark,
    headers: { "svc-cron": "0 0 2 1 *" },
  });
  const rights = JSON.stringify({ verbs: ["publish", "manage"] });
  return {
    server,
    she,
    blind: (await server.ask("POST", "/v2/tokens", { token: she.token, body: rights })).body.token,
  };
}

const needingRead: string[] = [];

describe("without the verb read", () => {
  test.each(cases)("$name", async ({ row, variant, name }) => {
    const { server, she, blind } = await serverWithToken();
    server.deliveries.splice(0);
    const asked = variant.change(makeRequest(row, she), she);
    const reply = await sendRequest(server, {
      ...asked,
      headers: { ...asked.headers, authorization: `Bearer ${blind}` },
    });
    const told = JSON.stringify([reply.body, reply.headers]);
    if (!JSON.stringify(asked).includes(mark)) expect(told).not.toContain(mark);
    if (reply.status === 403) needingRead.push(name);
    if (reply.status === 403)
      expect(reply.body.error).toMatch(
        /^token: requires '(read' to send|receive';)|^verbs: this token does not have the verb read/,
      );
    const failing = variant.name.includes("failure");
    for (const { message } of await yearOf(server, she, failing ? 500 : 200)) {
      if (!message.url.startsWith(thief)) continue;
      expect(
        opened(message.url + JSON.stringify(message.headers) + Buffer.from(message.body).toString()),
      ).not.toContain(mark);
    }
  });
});

test("only these variants require the verb read as well", () => {
  expect(needingRead.toSorted()).toEqual([
    "PATCH /v2/schedules/{scheduleId} with nothing else",
    "PATCH /v2/schedules/{scheduleId} with the field destination",
    "PATCH /v2/schedules/{scheduleId} with the field settings",
    "PATCH /v2/sources/{sourceId} with the field destination",
    "PATCH /v2/sources/{sourceId} with the field settings",
    "PATCH /v2/topics/{name} with the field headers",
    "POST /v2/attempts/batch with nothing else",
    "POST /v2/attempts/batch with the field reports",
    "POST /v2/dlq/retry with a callback",
    "POST /v2/dlq/retry with a failure callback",
    "POST /v2/dlq/retry/{dlqId} with a callback",
    "POST /v2/dlq/retry/{dlqId} with a failure callback",
    "POST /v2/dlq/{dlqId}/replay with a callback",
    "POST /v2/dlq/{dlqId}/replay with a failure callback",
    "POST /v2/dlq/{dlqId}/replay with nothing else",
    "POST /v2/dlq/{dlqId}/replay with the field headers",
    "POST /v2/dlq/{dlqId}/replay with the field url",
    "POST /v2/enqueue/{queue}/{destination} with a URL group and a callback",
    "POST /v2/enqueue/{queue}/{destination} with a URL group and a failure callback",
    "POST /v2/publish/{destination} with a URL group and a callback",
    "POST /v2/publish/{destination} with a URL group and a failure callback",
    // The routes of pulled messages need the verb receive.
    "POST /v2/pull with nothing else",
    "POST /v2/schedules/{destination} with a URL group and a callback",
    "POST /v2/schedules/{destination} with a URL group and a failure callback",
    "POST /v2/tokens with nothing else",
    "POST /v2/topics/{name}/endpoints with nothing else",
    "POST /v2/topics/{name}/endpoints with the field endpoints",
    "POST /v2/wait/{eventId} with nothing else",
    "POST /v2/wait/{eventId} with the field timeoutHeaders",
    "POST /v2/wait/{eventId} with the field timeoutUrl",
    "POST /v2/wait/{eventId} with the field url",
    "POST /v2/workflows/dlq/restart with a failure callback",
    "POST /v2/workflows/dlq/restart/{dlqId} with a failure callback",
    "POST /v2/workflows/dlq/resume with a failure callback",
    "POST /v2/workflows/dlq/resume/{dlqId} with a failure callback",
    "PUT /v2/alerts with nothing else",
    "PUT /v2/alerts with the field url",
  ]);
});
