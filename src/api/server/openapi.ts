import { z } from "zod";
import { brandNames, tagline } from "../../engine/core/values/brand.ts";
import { deliveryHeaders } from "../../engine/core/values/deliveryHeaders.ts";
import type { ErrorCode } from "../../engine/core/values/errors.ts";
import { errorCodes } from "../../engine/core/values/errors.ts";
import { formatHeaderName } from "../http/brand.ts";
import { errorHelp } from "../http/errorHelp.ts";
import { isAccountPath } from "../http/problems.ts";
import { callbackSchema, failureCallbackSchema } from "../views/callbackSchemas.ts";
import { webhooks } from "./openapiWebhooks.ts";
import type { Route } from "../route/route.ts";
import { changesAnything, takesFieldsInBody } from "../route/route.ts";
import { resumeSettings } from "../publishing/runOverrides.ts";
import { settingRows } from "../settings/table.ts";
import { workflowSettingRows } from "../settings/workflow.ts";
import {
  accountErrorSchema,
  deadLetterSchema,
  logEventSchema,
  messageSchema,
  refusalSchema,
} from "../views/schemas.ts";

type Json = Record<string, unknown>;

const namedSchemas = {
  Message: messageSchema,
  DeadLetter: deadLetterSchema,
  LogEntry: logEventSchema,
  Error: refusalSchema,
  AccountError: accountErrorSchema,
  Callback: callbackSchema,
  FailureCallback: failureCallbackSchema,
};

/** Returns the OpenAPI 3.1 document of the API. */
export function openApi(routes: readonly Route[]): Json {
  return {
    openapi: "3.1.0",
    info: {
      title: "Waypost",
      version: "2",
      summary: tagline,
      description:
        "Every setting of a message is a header, such as `Svc-Retries`, or a query parameter, such as " +
        "`svc-retries`. If both are given, the header wins. The settings of the other brand, such as " +
        "`Upstash-Retries` and `upstash-retries`, have the same effect. Every error is a JSON object with " +
        "the text `error` and the code `code`. Errors of the account endpoints have `message` and " +
        "`errorCode` instead, and their `code` is the name of the status. `docs` is the path of the page " +
        "that explains the code. It is absent for requests of the other brand.",
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    servers: [{ url: "/" }],
    tags: [...new Set(routes.map(({ tag }) => tag))].map((name) => ({ name })),
    paths: describePaths(routes),
    webhooks: webhooks(),
    components: {
      securitySchemes: {
        bearer: { type: "http", scheme: "bearer", description: "A token of the account." },
        basic: {
          type: "http",
          scheme: "basic",
          description: "The user name or the id of the account, and its password.",
        },
        operator: {
          type: "http",
          scheme: "basic",
          description: "The user name operator, and the password of WAYPOST_OPERATOR_PASSWORD.",
        },
        attempt: {
          type: "apiKey",
          in: "header",
          name: `${brandNames.svc.prefix}-${deliveryHeaders.attempt.name}`,
          description: "The token of an attempt, from the header of its delivery.",
        },
        svcToken: {
          type: "apiKey",
          in: "query",
          name: brandNames.svc.queryToken,
          description: "The token as a query parameter, for senders that cannot set headers.",
        },
        upstashToken: {
          type: "apiKey",
          in: "query",
          name: brandNames.upstash.queryToken,
          description: "The token as a query parameter of the other brand.",
        },
      },
      schemas: Object.fromEntries(
        Object.entries(namedSchemas).map(([name, shape]) => [name, toJsonSchema(shape, { inline: true })]),
      ),
      parameters: settingParameters(),
      responses: Object.fromEntries(codes.flatMap(listErrorResponses)),
    },
  };
}

const codes = Object.keys(errorCodes) as ErrorCode[];

/** Returns the response with a code, and that of the account endpoints. */
const listErrorResponses = (code: ErrorCode): [name: string, response: Json][] =>
  [false, true].map((isOfAccounts) => [
    nameErrorResponse(code, isOfAccounts),
    makeErrorResponse(`${toSentence(errorCodes[code].meaning)} ${errorHelp[code].remedy}`, isOfAccounts),
  ]);

const makeErrorResponse = (description: string, isOfAccounts: boolean): Json => ({
  description,
  content: {
    "application/json": {
      schema: { $ref: `#/components/schemas/${isOfAccounts ? "AccountError" : "Error"}` },
    },
  },
});

/** Returns the meaning of each of several codes. */
const describeCodes = (codes: readonly ErrorCode[]): string =>
  codes.map((code) => `\`${code}\`: ${toSentence(errorCodes[code].meaning)}`).join(" ");

const nameErrorResponse = (code: ErrorCode, isOfAccounts: boolean): string =>
  isOfAccounts ? `account-${code}` : code;

function describePaths(routes: readonly Route[]): Json {
  const paths: Record<string, Json> = {};
  for (const row of routes) (paths[row.path] ??= {})[row.method.toLowerCase()] = describeOperation(row);
  return paths;
}

function describeOperation(row: Route): Json {
  return {
    operationId: makeOperationId(row),
    tags: [row.tag],
    summary: row.summary,
    ...describeDeprecation(row),
    security: describeSecurity(row),
    parameters: [...pathParameters(row), ...queryParameters(row), ...settingReferences(row)],
    ...(row.body === undefined ? {} : { requestBody: requestBody(row.body) }),
    ...(takesFieldsInBody(row) && Object.keys(row.query.shape).length > 0
      ? { requestBody: fieldsBody(row) }
      : {}),
    responses: { ...describeResponses(row), ...describeUnchanged(row), ...describeRefusals(row) },
  };
}

const describeDeprecation = ({ about, deprecated }: Route): Json => {
  const note =
    deprecated &&
    `Deprecated since ${deprecated.since}, and removed on ${deprecated.sunset} or later: ${deprecated.link}`;
  const description = [note, about].filter(Boolean).join(". ");
  return { ...(deprecated && { deprecated: true }), ...(description !== "" && { description }) };
};

const describeSecurity = ({ access, takesTokens, headerOnly }: Route): Json[] => {
  if (access === "account") return takesTokens ? [{ basic: [] }, { bearer: [] }] : [{ basic: [] }];
  if (access === "operator") return [{ operator: [] }];
  if (access === "attempt") return [{ attempt: [] }];
  if (access !== "token") return [];
  return [{ bearer: [] }, ...(headerOnly ? [] : [{ svcToken: [] }, { upstashToken: [] }])];
};

/** Returns the operation id made from method and path, such as `getDlq` or `postDlqRetryByDlqId`. */
function makeOperationId({ method, path }: Route): string {
  const words = path
    .replace("/v2", "")
    .split("/")
    .map((part) => part.replace(/^\{(.*)\}$/, "by-$1"));
  return (
    method.toLowerCase() +
    words
      .flatMap((word) => word.split("-"))
      .map((word) => word.slice(0, 1).toUpperCase() + word.slice(1))
      .join("")
  );
}

function pathParameters({ path }: Route): Json[] {
  const names = [...path.matchAll(/\{(\w+)\}/g)].map(([, name = ""]) => name);
  return names.map((name) => ({
    name,
    in: "path",
    required: true,
    description: aboutNames[name] ?? "",
    schema: { type: "string" },
  }));
}

const aboutNames: Readonly<Record<string, string>> = {
  destination:
    "A URL with http:// or https://, not percent-encoded. The URL is the rest of the request target, " +
    "including the query, byte for byte.",
  messageId: "The id of a message.",
  scheduleId: "The id of a schedule.",
  workflowRunId: "The id of a run, percent-encoded.",
  eventId: "The id of an event, percent-encoded.",
  userId: "The id of the account.",
  id: "The id of the account.",
  account: "The id of the account, or its name, percent-encoded.",
  dlqId: "The id of an entry of the dead letter queue.",
  tokenId: "The id of a token.",
  sourceId: "The id of a source.",
  secret: "The secret in the URL of the source.",
  key: "A flow-control key, percent-encoded.",
  name: "The name of a queue or a URL group.",
  queue: "The name of a queue.",
};

/** Returns the query parameters. A list is a repeated parameter. */
function queryParameters({ query }: Route): Json[] {
  const fields: [name: string, schema: z.core.$ZodType][] = Object.entries(query.shape);
  return fields.map(([name, field]) => {
    const { description = "", ...schema } = toJsonSchema(field);
    return { name, in: "query", required: false, description, style: "form", explode: true, schema };
  });
}

const rows = Object.entries(settingRows);

function settingReferences({ settings, runSettings = [] }: Route): Json[] {
  if (settings === undefined) return [];
  const isTaken = {
    all: () => true,
    retry: (row: Row) => row.forRetries === true,
    resume: (_: Row, name: string) => resumeSettingNames.has(name),
  }[settings];
  const names = rows.filter(([name, row]) => isTaken(row, name)).map(([name]) => name);
  return [...names, ...runSettings, ...(settings === "resume" ? [] : settingFamilies)].flatMap((name) =>
    prefixes.map((prefix) => ({ $ref: `#/components/parameters/${makeParameterKey(prefix, name)}` })),
  );
}

type Row = (typeof settingRows)[keyof typeof settingRows];
const resumeSettingNames: ReadonlySet<string> = resumeSettings;

const prefixes = Object.values(brandNames).map(({ prefix }) => prefix);
const settingFamilies = ["forward-{name}", "callback-{setting}", "failure-callback-{setting}"] as const;

const makeParameterKey = (prefix: string, name: string): string =>
  formatHeaderName(`${prefix}-${name.replaceAll(/[{}]/g, "")}`);

function settingParameters(): Json {
  const parameters: Json = {};
  for (const prefix of prefixes) {
    for (const [name, { about, example, text }] of [...rows, ...Object.entries(workflowSettingRows)]) {
      const description = `${about} As a query parameter: \`${prefix.toLowerCase()}-${name}\`.`;
      const header = {
        name: formatHeaderName(`${prefix}-${name}`),
        in: "header",
        required: false,
        description,
        example,
        schema: toJsonSchema(text),
      };
      parameters[makeParameterKey(prefix, name)] = header;
    }
    for (const name of settingFamilies) {
      const headerName = formatHeaderName(`${prefix}-${name}`).replace(/\{.*/, name.slice(name.indexOf("{")));
      const header = {
        name: headerName,
        in: "header",
        required: false,
        description: aboutFamily[name],
        schema: { type: "string" },
      };
      parameters[makeParameterKey(prefix, name)] = header;
    }
  }
  return parameters;
}

const forCallbacks = rows
  .filter(([, { forCallbacks }]) => forCallbacks === true)
  .map(([name]) => name)
  .join(", ");

const aboutFamily: Record<(typeof settingFamilies)[number], string> = {
  "forward-{name}": "A header that is delivered without the prefix.",
  "callback-{setting}": `A setting of the callback: ${forCallbacks}, or forward-{name}.`,
  "failure-callback-{setting}": `A setting of the failure callback: ${forCallbacks}, or forward-{name}.`,
};

const requestBody = ({ about, contentType, schema, required }: NonNullable<Route["body"]>): Json => ({
  description: about,
  required,
  content: { [contentType]: { schema: toJsonSchema(schema, { io: "input" }) } },
});

const fieldsBody = ({ query }: Route): Json => ({
  description: "The query parameters, as the fields of a JSON object.",
  required: false,
  content: { "application/json": { schema: toJsonSchema(query.partial()) } },
});

const describeResponses = ({ answers }: Route): Json =>
  Object.fromEntries(
    Object.entries(answers).map(([status, { about, contentType = "application/json", schema }]) => [
      status,
      { description: about, content: { [contentType]: { schema: toJsonSchema(schema) } } },
    ]),
  );

const unchanged = "The response has not changed since the one whose ETag If-None-Match names.";

/** Returns the response to a read that the caller has already. */
const describeUnchanged = (row: Route): Json =>
  row.method === "GET" && row.access === "token" && !row.streams && !changesAnything(row)
    ? { 304: { description: unchanged } }
    : {};

/** Returns the codes of the refusals that a route lists and of those that any request can meet. */
export function listRefusals({ access, operation, refusals, body }: Route): ErrorCode[] {
  const always: ErrorCode[] = [
    "invalid",
    ...(access === "token" || access === "account" || access === "operator"
      ? (["unauthorized", "too-many-failures"] as const)
      : []),
    ...(body ? (["too-large"] as const) : []),
    ...((access === "token" || access === "account") && operation === undefined
      ? (["too-many-requests"] as const)
      : []),
  ];
  return [...new Set<ErrorCode>([...always, ...refusals, "headers-too-large", "internal", "stopping"])];
}

/**
 * Returns the responses to refused requests. Codes with the same status share one entry, whose description
 * names each of them.
 */
function describeRefusals(route: Route): Json {
  const isOfAccounts = isAccountPath(route.path);
  const byStatus = Map.groupBy(listRefusals(route), (code) => errorCodes[code].status);
  return Object.fromEntries(
    [...byStatus].map(([status, codes]) => [
      status,
      codes.length === 1 && codes[0]
        ? { $ref: `#/components/responses/${nameErrorResponse(codes[0], isOfAccounts)}` }
        : makeErrorResponse(describeCodes(codes), isOfAccounts),
    ]),
  );
}

/**
 * Returns the JSON Schema of the output of a schema, or of its input. Named schemas become references to
 * their name.
 */
function toJsonSchema(
  root: z.core.$ZodType,
  { inline = false, io = "output" }: { inline?: boolean; io?: "input" | "output" } = {},
): Json {
  const { $schema: _dialect, ...rest } = z.toJSONSchema(root, {
    io,
    unrepresentable: "any",
    override: ({ zodSchema, jsonSchema, path }) => {
      const named =
        inline && path.length === 0
          ? undefined
          : Object.entries(namedSchemas).find(([, shape]) => shape === zodSchema);
      if (named) {
        for (const key of Object.keys(jsonSchema)) Reflect.deleteProperty(jsonSchema, key);
        jsonSchema.$ref = `#/components/schemas/${named[0]}`;
      }
      // Responses may gain fields, and clients must not reject them.
      if (
        jsonSchema.additionalProperties === false &&
        zodSchema instanceof z.ZodObject &&
        zodSchema.def.catchall === undefined
      ) {
        delete jsonSchema.additionalProperties;
      }
      // The bounds of the number type itself are not useful.
      if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
      if (jsonSchema.minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum;
    },
  });
  return rest;
}

const toSentence = (text: string): string => `${text.slice(0, 1).toUpperCase()}${text.slice(1)}.`;
