import { fc } from "../../../seeds.ts";
import { expect, test } from "vitest";
import type { Route } from "../../../../src/api/route/route.ts";
import { takesFieldsInBody } from "../../../../src/api/route/route.ts";
import { routes } from "../../../../src/operations/routes.ts";
import type { TestServer, Reply } from "../../testServer.ts";
import { createTestServer } from "../../testServer.ts";
import type { RequestParts, Possessions } from "./possessions.ts";
import { sendRequest, createPossessions, makeRequest, dumpRows } from "./possessions.ts";

// One account, the intruder, tries every request with the names and ids of another account's objects, in
// every
// place that can have a name or an id. The other account is the owner.

const ownerMark = "markofhers";
const intruderMark = "markofhis";

/** Creates a server with both accounts and their objects. */
async function both(): Promise<{ server: TestServer; owner: Possessions; intruder: Possessions }> {
  const server = await createTestServer();
  return {
    server,
    owner: await createPossessions(server, "acc_a", ownerMark),
    intruder: await createPossessions(server, "acc_b", intruderMark),
  };
}

/**
 * The routes to try. Left out are the routes for the operator, who sees everything, and those that a secret
 * in the URL opens: sources and webhooks.
 */
const rows = routes
  .filter(({ access }) => access === "token" || access === "account" || access === "open")
  .map((row) => ({ row, name: `${row.method} ${row.path}` }));

/** Returns an unknown id of the same length and with the same kinds of characters. */
const strangerOf = (id: string): string =>
  id
    .replace(/_a/, "_z")
    .replace(/\w(?=\W*$)/, (last) =>
      /\d/.test(last) ? String((Number(last) + 5) % 10) : last === "q" ? "r" : "q",
    );

/** Returns a response without the parts that differ between requests: given ids and new ids. */
const shapeOf = ({ status, body }: Reply, given: string): string =>
  JSON.stringify({ status, body })
    .replaceAll(given, "(given)")
    .replaceAll(encodeURIComponent(given), "(given)")
    .replaceAll(/\b(msg|scd|src|wfr|aud|sig)_[1-9A-Za-z]{20,}/g, "(new)");

const idsOf = ({ account, ids }: Possessions): string[] => [account, ...Object.values(ids)];

/** Checks that the response has nothing of the owner's, apart from what the request itself contained. */
function expectNothingOfOwner({ body, headers }: Reply, request: RequestParts, owner: Possessions): void {
  const received = JSON.stringify([body, headers]);
  const sent = JSON.stringify(request) + (decoded(request.url) ?? "");
  for (const own of [ownerMark, ...idsOf(owner)])
    if (!sent.includes(own) && received.includes(own)) expect(received, request.url).not.toContain(own);
}

const decoded = (text: string): string | null => {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
};

/** Returns requests with a value of the owner's in one of the parameters. */
function withParameters(row: Route, asked: RequestParts, { account, ids }: Possessions): RequestParts[] {
  const values = [
    ids.messageId,
    ids.dlqId,
    ids.failedRun,
    ids.runId,
    ids.queue,
    account,
    ownerMark,
    `https://${ownerMark}.example/x`,
    `${ownerMark}.example`,
  ];
  const path = asked.url.replace(/\?.*/, "");
  return Object.keys(row.query.shape).flatMap((field) =>
    values.map((value) => {
      const { method, headers } = asked;
      if (takesFieldsInBody(row))
        return { method, headers, url: path, body: JSON.stringify({ [field]: value }) };
      return { method, headers, url: `${path}?${field}=${encodeURIComponent(value)}` };
    }),
  );
}

test.each(rows)(
  "$name reveals and changes nothing of another account, and treats its ids as unknown",
  async ({ row }) => {
    const shared = await both();
    const { server, owner, intruder } = shared;
    const before = dumpRows(server, "acc_a");
    const isNamed = /\{(?!destination)\w+\}/.test(row.path);
    for (const id of isNamed ? idsOf(owner) : [owner.account]) {
      // A step waits for one event only, so each request needs a server where the step does not wait yet. An
      // account may have few outboxes.
      const [here, there] = /^\/v2\/(wait|outboxes)\//.test(row.path)
        ? [await both(), await both()]
        : [shared, shared];
      const was = dumpRows(here.server, "acc_a");
      const request = makeRequest(row, here.intruder, id);
      const reply = await sendRequest(here.server, request);
      expectNothingOfOwner(reply, request, here.owner);
      expect(dumpRows(here.server, "acc_a") === was, `${request.url} changed what another account has`).toBe(
        true,
      );
      const stranger = strangerOf(id);
      expect(stranger).not.toBe(id);
      const other = await sendRequest(there.server, makeRequest(row, there.intruder, stranger));
      if (isNamed) expect(shapeOf(reply, id), request.url).toBe(shapeOf(other, stranger));
    }
    for (const request of withParameters(row, makeRequest(row, intruder), owner))
      expectNothingOfOwner(await sendRequest(server, request), request, owner);
    expect(dumpRows(server, "acc_a") === before, "what another account has was changed").toBe(true);
  },
);

const brands = ["svc", "upstash"] as const;
/** Settings whose values are names or ids. */
const naming = [
  "schedule-id",
  "deduplication-id",
  "flow-control-key",
  "workflow-runid",
  "queue",
  "message-id",
  "retry-of",
  "label",
] as const;

test("arbitrary requests with names of another account reveal and change nothing of it", async () => {
  const { server, owner, intruder } = await both();
  const before = dumpRows(server, "acc_a");
  const own = [...idsOf(owner), "none", "%00", ""];
  const id = fc.constantFrom(...own);
  const brand = fc.constantFrom(...brands);
  const anything = fc.record({
    row: fc.constantFrom(...rows.map(({ row }) => row)),
    method: fc.option(fc.constantFrom("GET", "POST", "PUT", "PATCH", "DELETE"), { nil: null, freq: 3 }),
    put: fc.array(id, { minLength: 4, maxLength: 4 }),
    headers: fc.dictionary(
      fc.tuple(brand, fc.constantFrom(...naming)).map((parts) => parts.join("-")),
      id,
      { maxKeys: 3 },
    ),
    body: fc.oneof(
      fc.constant(null),
      fc.array(
        fc.record({
          destination: id,
          queue: id,
          headers: fc.dictionary(fc.constant("Svc-Workflow-RunId"), id),
        }),
        { maxLength: 2 },
      ),
      fc.dictionary(
        fc.constantFrom("messageIds", "dlqIds", "workflowRunIds", "queueName", "svc_id", "qstash_id", "name"),
        id,
        {
          maxKeys: 2,
        },
      ),
    ),
    destination: fc.oneof(id, fc.constant("https://e.example/x")),
  });
  await fc.assert(
    fc.asyncProperty(anything, async ({ row, method, put, headers, body, destination }) => {
      let place = 0;
      const path = row.path.replaceAll(/\{(\w+)\}/g, (_, name: string) =>
        name === "destination" ? destination : encodeURIComponent(put[place++] ?? ""),
      );
      const asked = makeRequest(row, intruder);
      const tokens = path.includes("/rotate-token/")
        ? {}
        : { authorization: asked.headers["authorization"] ?? "" };
      const sent = Object.fromEntries(Object.entries(headers).filter(([, value]) => value !== ""));
      const request = {
        method: method ?? row.method,
        url: path,
        headers: { ...sent, ...tokens },
        ...(body !== null && { body: JSON.stringify(body) }),
      };
      const reply = await sendRequest(server, request);
      expect(reply.status).toBeLessThan(500);
      // The intruder may have used the owner's names for its own objects, but never sees the owner's content.
      expect(JSON.stringify([reply.body, reply.headers])).not.toContain(ownerMark);
    }),
    { numRuns: 400 },
  );
  expect(dumpRows(server, "acc_a") === before, "what another account has was changed").toBe(true);
});
