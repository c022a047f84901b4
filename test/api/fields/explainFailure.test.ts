import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import type { HeaderList } from "../../../src/engine/core/values/basics.ts";
import { explainFailure, listKnownFailures } from "../../../src/api/fields/explainFailure.ts";
import {
  givenBackError,
  notPulledError,
  returnedError,
  unreportedError,
} from "../../../src/engine/core/sending/endedAttempt.ts";
import { canonicalName } from "../../../src/engine/core/values/headers.ts";
import { bytes } from "../../engine/core/commandRunner.ts";

type Given = { status?: number; error?: string; body?: string; headers?: HeaderList };
const explain = (
  { status, error, body = "", headers = [] }: Given,
  about: Partial<Parameters<typeof explainFailure>[1]> = {},
): string | null =>
  explainFailure(
    { status: status ?? null, error: error ?? null, headers, body: bytes(body) },
    { redaction: null, ofRun: false, ...about },
  );

/** The sources of a published client. */
const read = (path: string): string =>
  readFileSync(new URL(`../../../node_modules/${path}`, import.meta.url), "utf8");
const workflowClient = "@upstash/workflow/express.js";
const qstashClient = "@upstash/qstash/nextjs.js";

test("the errors of attempts that are held are explained", () => {
  expect(explain({ error: unreportedError })).toMatch(/held the attempt/);
  expect(explain({ error: notPulledError })).toMatch(/Another pull gets the message: at once/);
  expect(explain({ error: returnedError })).toMatch(/had not begun the work/);
  expect(explain({ error: givenBackError })).toMatch(/sends the message again\. The attempt/);
});

describe("an error of a published client is explained, and the client still has it:", () => {
  test.each<[text: string, client: string, explanation: RegExp]>([
    ["Failed to authenticate Workflow request.", workflowClient, /returned before its first step/],
    [
      "Failed to verify that the Workflow request comes from QStash:",
      workflowClient,
      /refused the signature.*signing keys/,
    ],
    ["workflow run steps. This can happen", workflowClient, /could not read the history/],
    ["`Upstash-Signature` header is missing", qstashClient, /found no signature/],
    ["`Upstash-Signature` header is not passed.", qstashClient, /found no signature/],
    ["Signature in `Upstash-Signature` header is not valid", qstashClient, /refused the signature/],
    ["invalid signature", qstashClient, /refused the signature/],
    ["body hash does not match, want: ", qstashClient, /another body or URL/],
    ["invalid subject: ", qstashClient, /another body or URL/],
    ["No signing keys available for verification.", qstashClient, /refused the signature/],
    ["client token is not set.", qstashClient, /Set QSTASH_TOKEN/],
    ["signature verification failed", "jose/dist/node/esm/util/errors.js", /refused the signature/],
    ["timestamp check failed", "jose/dist/node/esm/lib/jwt_claims_set.js", /clocks/],
  ])("%s", (text, client, explanation) => {
    expect(read(client)).toContain(text);
    for (const status of [400, 403, 500]) {
      expect(explain({ status, body: text })).toMatch(explanation);
      const json = JSON.stringify({ error: "Error", message: `${text} and more`, stack: "…" });
      expect(explain({ status, body: json })).toMatch(explanation);
    }
  });
});

describe("an error of the server is explained:", () => {
  test.each([
    ["address 127.0.0.1 of localhost is not public: allow it with WAYPOST_EGRESS_ALLOW=127.0.0.1", /private/],
    ["name not found", /has no address/],
    ["name not found: the name server did not respond", /name server did not respond/],
    ["TLS problem: CERT_HAS_EXPIRED", /has expired/],
    ["TLS problem: ERR_TLS_CERT_ALTNAME_INVALID", /for another host/],
    ["TLS problem: DEPTH_ZERO_SELF_SIGNED_CERT", /known authority/],
    ["TLS problem: UNABLE_TO_VERIFY_LEAF_SIGNATURE", /known authority/],
    ["TLS problem: EPROTO", /No secure connection/],
    [
      "TLS problem: the destination does not speak TLS on this port (ERR_SSL_HTTP_REQUEST); use http://",
      /speaks plain HTTP/,
    ],
    ["connection refused", /No program listens/],
    ["the host evil.example is not allowed for this account", /waypost account hosts/],
    ["the proxy closed the connection", /through a proxy/],
    ["connecting through the proxy timed out", /through a proxy/],
    ["connecting timed out", /does not respond/],
    ["address unreachable", /does not respond/],
    ["timed out after 15 seconds", /did not respond in time.*do it twice/],
    ["connection lost before the response was complete", /closed the connection/],
    ["detected a non-workflow destination for trigger/invoke. make sure", /not as a workflow/],
    ["trigger rest api is only usable with sdk versions after v1.0.0 major version", /too old/],
    ["the code does not fit the history: Incompatible", /has changed since the run began/],
    ['step 2: history has "a", the endpoint ran "b"', /has changed since the run began/],
  ])("%s", (error, explanation) => {
    expect(explain({ error })).toMatch(explanation);
    expect(explain({ error: "aborted" })).toBeNull();
  });
});

describe("documents show a known failure by a string that it is recognized by:", () => {
  const { errors, responses } = listKnownFailures();
  test.each(errors)("$shown", ({ shown, ofRun, explanation }) => {
    expect(explain({ error: shown.replaceAll("…", "x") }, { ofRun })).toBe(explanation);
  });
  test.each(responses)("$shown", ({ shown, ofRun, explanation }) => {
    expect(explain(toResponse(shown), { ofRun })).toBe(explanation);
  });
});

/** The response of a failure that is shown by a status, by a header, or by a part of the body. */
function toResponse(shown: string): Given {
  const status = Number.parseInt(shown, 10);
  const [name = "", value] = shown.split(": ");
  if (status > 0) return { status };
  if (value === "true") return { status: 489, headers: [[canonicalName(name), value]] };
  return { status: 400, body: shown };
}

describe("a status is explained:", () => {
  test.each([
    [301, /redirects/],
    [308, /redirects/],
    [401, /login/],
    [403, /login/],
    [404, /nothing at this path/],
    [405, /HTTP method/],
    [413, /larger/],
    [415, /content type/],
    [429, /flow-control key/],
    [502, /cannot reach the application/],
    [504, /stopped waiting.*do it twice/],
  ])("%d", (status, explanation) => {
    expect(explain({ status, body: "<html>" })).toMatch(explanation);
  });

  test("489 only if it forbids a retry", () => {
    expect(explain({ status: 489 })).toBeNull();
    for (const brand of ["Svc", "Upstash"])
      expect(explain({ status: 489, headers: [[`${brand}-Nonretryable-Error`, "true"]] })).toMatch(/futile/);
  });

  test.each([200, 204, 299])("but not the success %d", (status) => {
    expect(explain({ status, body: "invalid signature" })).toBeNull();
  });

  test.each([400, 500, 418, 999])("and %d is not, because it has no single meaning", (status) => {
    expect(explain({ status, body: "boom" })).toBeNull();
  });
});

describe("a timeout in a run", () => {
  test.each([{ status: 504 }, { status: 524 }, { error: "timed out after 15 seconds" }])(
    "%o says that the step may still post its result",
    (given) => {
      expect(explain(given, { ofRun: true })).toMatch(/step may still run and post its result/);
      expect(explain(given)).not.toMatch(/step/);
    },
  );
});

describe("the body", () => {
  test("is not searched if it is hidden", () => {
    const given = { status: 400, body: "Failed to authenticate Workflow request" };
    expect(explain(given)).not.toBeNull();
    expect(explain(given, { redaction: { body: true, headers: false } })).toBeNull();
    expect(explain(given, { redaction: { body: false, headers: true } })).not.toBeNull();
  });

  test("is searched only at its beginning, and may be binary", () => {
    const text = "Failed to authenticate Workflow request";
    expect(explain({ status: 400, body: "x".repeat(16 * 1024) + text })).toBeNull();
    const body = Uint8Array.from([0xff, 0x00, ...bytes(text)]);
    expect(
      explainFailure({ status: 400, error: null, headers: [], body }, { redaction: null, ofRun: false }),
    ).not.toBeNull();
  });

  test("cannot make the search slow", () => {
    const hostile = "Signature in ".repeat(1_200);
    expect(explain({ status: 400, body: hostile })).toBeNull();
  });
});
