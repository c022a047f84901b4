import fc from "fast-check";
import { expect, test } from "vitest";
import type { Route } from "../../../../src/api/route/route.ts";
import { takesFieldsInBody } from "../../../../src/api/route/route.ts";
import { routes } from "../../../../src/api/routes/index.ts";
import type { TestServer, Reply } from "../../testServer.ts";
import { createTestServer } from "../../testServer.ts";
import type { RequestParts, Possessions } from "./possessions.ts";
import { sendRequest, createPossessions, makeRequest, dumpRows } from "./possessions.ts";

// One account tries every request with the names and ids of what another one has, wherever a name or an id can stand.

const hers = "markofhers";
const his = "markofhis";

/** What she has, and he tries. */
async function both(): Promise<{ home: TestServer; she: Possessions; he: Possessions }> {
  const home = await createTestServer();
  return { home, she: await createPossessions(home, "acc_a", hers), he: await createPossessions(home, "acc_b", his) };
}

/** Who holds the secret of a source or the URL of a webhook is let in by it, and who runs the server sees all. */
const rows = routes
  .filter(({ access }) => access === "token" || access === "account" || access === "open")
  .map((row) => ({ row, name: `${row.method} ${row.path}` }));

/** The same length and letters, and nobody's. */
const strangerOf = (id: string): string =>
  id.replace(/_a/, "_z").replace(/\w(?=\W*$)/, (last) => (/\d/.test(last) ? String((Number(last) + 5) % 10) : last === "q" ? "r" : "q"));

/** An answer without what differs from one request to the next: the ids that were given, and those that were made. */
const shapeOf = ({ status, body }: Reply, given: string): string =>
  JSON.stringify({ status, body })
    .replaceAll(given, "(given)")
    .replaceAll(encodeURIComponent(given), "(given)")
    .replaceAll(/\b(msg|scd|src|wfr|aud|sig)_[1-9A-Za-z]{20,}/g, "(new)");

const idsOf = ({ account, ids }: Possessions): string[] => [account, ...Object.values(ids)];

/** Nothing of hers is in what he is told, besides what he has said himself. */
function expectNothingOfHers({ body, headers }: Reply, request: RequestParts, she: Possessions): void {
  const told = JSON.stringify([body, headers]);
  const said = JSON.stringify(request) + (decoded(request.url) ?? "");
  for (const own of [hers, ...idsOf(she)]) if (!said.includes(own) && told.includes(own)) expect(told, request.url).not.toContain(own);
}

const decoded = (text: string): string | null => {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
};

/** Requests with something of hers in one of the parameters. */
function withParameters(row: Route, asked: RequestParts, { account, ids }: Possessions): RequestParts[] {
  const values = [
    ids.messageId,
    ids.dlqId,
    ids.failedRun,
    ids.runId,
    ids.queue,
    account,
    hers,
    `https://${hers}.example/x`,
    `${hers}.example`,
  ];
  const path = asked.url.replace(/\?.*/, "");
  return Object.keys(row.query.shape).flatMap((field) =>
    values.map((value) => {
      const { method, headers } = asked;
      if (takesFieldsInBody(row)) return { method, headers, url: path, body: JSON.stringify({ [field]: value }) };
      return { method, headers, url: `${path}?${field}=${encodeURIComponent(value)}` };
    }),
  );
}

test.each(rows)("$name tells and changes nothing of another account, and answers as if there were nothing", async ({ row }) => {
  const shared = await both();
  const { home, she, he } = shared;
  const before = dumpRows(home, "acc_a");
  const isNamed = /\{(?!destination)\w+\}/.test(row.path);
  for (const id of isNamed ? idsOf(she) : [she.account]) {
    // A step waits for one thing only: each has to be asked for where it does not wait yet.
    const [here, there] = row.path.startsWith("/v2/wait/") ? [await both(), await both()] : [shared, shared];
    const was = dumpRows(here.home, "acc_a");
    const request = makeRequest(row, here.he, id);
    const reply = await sendRequest(here.home, request);
    expectNothingOfHers(reply, request, here.she);
    expect(dumpRows(here.home, "acc_a") === was, `${request.url} changed what another account has`).toBe(true);
    const stranger = strangerOf(id);
    expect(stranger).not.toBe(id);
    const other = await sendRequest(there.home, makeRequest(row, there.he, stranger));
    if (isNamed) expect(shapeOf(reply, id), request.url).toBe(shapeOf(other, stranger));
  }
  for (const request of withParameters(row, makeRequest(row, he), she)) expectNothingOfHers(await sendRequest(home, request), request, she);
  expect(dumpRows(home, "acc_a") === before, "what another account has was changed").toBe(true);
});

const brands = ["svc", "upstash"] as const;
/** Settings that name something. */
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

test("whatever one account asks for, with names of another one anywhere, it learns and changes nothing of that", async () => {
  const { home, she, he } = await both();
  const before = dumpRows(home, "acc_a");
  const own = [...idsOf(she), "none", "%00", ""];
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
      fc.array(fc.record({ destination: id, queue: id, headers: fc.dictionary(fc.constant("Svc-Workflow-RunId"), id) }), { maxLength: 2 }),
      fc.dictionary(fc.constantFrom("messageIds", "dlqIds", "workflowRunIds", "queueName", "svc_id", "qstash_id", "name"), id, {
        maxKeys: 2,
      }),
    ),
    destination: fc.oneof(id, fc.constant("https://e.example/x")),
  });
  await fc.assert(
    fc.asyncProperty(anything, async ({ row, method, put, headers, body, destination }) => {
      let place = 0;
      const path = row.path.replaceAll(/\{(\w+)\}/g, (_, name: string) =>
        name === "destination" ? destination : encodeURIComponent(put[place++] ?? ""),
      );
      const asked = makeRequest(row, he);
      const tokens = path.includes("/rotate-token/") ? {} : { authorization: asked.headers["authorization"] ?? "" };
      const sent = Object.fromEntries(Object.entries(headers).filter(([, value]) => value !== ""));
      const request = {
        method: method ?? row.method,
        url: path,
        headers: { ...sent, ...tokens },
        ...(body !== null && { body: JSON.stringify(body) }),
      };
      const reply = await sendRequest(home, request);
      expect(reply.status).toBeLessThan(500);
      // He may have given her names to things of his own by now; what she has put there is another matter.
      expect(JSON.stringify([reply.body, reply.headers])).not.toContain(hers);
    }),
    { numRuns: 400 },
  );
  expect(dumpRows(home, "acc_a") === before, "what another account has was changed").toBe(true);
});
