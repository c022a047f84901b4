import type { CheckResult } from "./finding.ts";
import { findUntrustedCertificate } from "../../engine/core/values/untrustedCertificate.ts";
import type { ServerConfig } from "../../settings/config.ts";
import { ok, problem, skipped, toErrorText, warning } from "./finding.ts";
import { type Reply, requestReply, type SentBody } from "./request.ts";

/**
 * A request that arrives as something else if a proxy changes it. `part` is what the proxy may change, and
 * `change` what it then does. `fix` says what to set.
 */
type Probe = { path: string; part: string; change: string; fix: string };

const asItIs = "nginx: proxy_pass without a path";

/** Paths that the server does not have. A proxy that changes one makes it the path of the health. */
const listPathProbes = (prefix: string): Probe[] => [
  {
    ...{ path: "/v2%2Fhealth", part: "%2F", change: "decodes %2F" },
    fix: `${asItIs}; Apache: AllowEncodedSlashes NoDecode, and ProxyPass with nocanon`,
  },
  {
    ...{ path: "/v2//health", part: "//", change: "merges //" },
    fix: `nginx: merge_slashes off; and proxy_pass without a path; Apache: MergeSlashes Off`,
  },
  { ...{ path: "/v2/none/../health", part: "..", change: "resolves .." }, fix: asItIs },
  ...listMiddles(prefix),
];

/** A proxy may remove a prefix everywhere, and another one everything up to its last place. */
function listMiddles(prefix: string): Probe[] {
  const removed = prefix === "" ? "what is before /v2" : prefix;
  const part = `${prefix}/v2 in the middle of a path`;
  const change = `removes ${removed} in the middle of a path`;
  const fix = `remove ${removed} only at the beginning of the path`;
  const paths = [`/v2/none${prefix}/v2/health`, ...(prefix === "" ? [] : [`/v2${prefix}/health`])];
  return paths.map((path) => ({ path, part, change, fix }));
}

/** A parameter that the server does not know. Its refusal repeats the name. */
const queryName = "a//b";
const queryFix = "pass the query on as it is; nginx: proxy_pass without a path, or with $request_uri";

const mebibyte = 1024 * 1024;
/** A proxy should let a body through also in base64, which is a third longer, within JSON. */
const proxyShare = 1.6;

/**
 * Sends harmless requests through the proxy in front of the server. They have no token, and most have paths
 * that do not exist unless the proxy changes them.
 */
export async function checkProxy({
  publicUrl,
  maxBody,
}: Pick<ServerConfig, "publicUrl" | "maxBody">): Promise<CheckResult> {
  if (publicUrl === "") return skipped("no --public-url is set, so no proxy was tried");
  const prefix = new URL(publicUrl).pathname.replace(/\/$/, "");
  const send: Send = (path, sent) => requestReply(publicUrl, `${prefix}${path}`, sent);
  const health = await send("/v2/health").then(judgeHealth, judgeUnreachable);
  if (health) return problem(`${publicUrl}/v2/health: ${health.problem}`, health.fix);
  const changes = [...(await findPathChanges(send, prefix)), ...(await findQueryChanges(send))];
  if (changes.length > 0) {
    const list = (texts: readonly string[], separator: string): string => [...new Set(texts)].join(separator);
    return problem(
      `${publicUrl} changes requests, so destinations in paths are damaged: it ` +
        list(
          changes.map(({ change }) => change),
          ", ",
        ),
      list(
        changes.map(({ fix }) => fix),
        "; ",
      ),
    );
  }
  return judgeBodies({ publicUrl, maxBody, send });
}

const passFix = "correct --public-url, or let the proxy pass every path to the server";

const judgeHealth = ({ status }: Reply) =>
  status === 200 ? null : { problem: `status ${status}`, fix: passFix };

const judgeUnreachable = (error: unknown) =>
  findUntrustedCertificate(error) ?? { problem: toErrorText(error), fix: passFix };

const publishPath = "/v2/publish/https://example.com";
/** A login of the console is the only request without a token whose body the server reads: up to 1 MiB. */
const loginPath = "/console/session";
/** A little less than 1 MiB, because a proxy may send the body in chunks. */
const readWithoutToken = mebibyte - 16 * 1024;

/**
 * Compares the responses to large bodies with those to small ones: without a token, the server refuses all of
 * them. The largest body is only announced, because the server would not read it. A proxy that limits the
 * length refuses it. Other proxies ask for it, or pass the refusal of the server on. A body of 1 MiB must
 * arrive. A login without fields is refused only when its last byte has arrived, and a publish before that.
 */
async function judgeBodies({ publicUrl, maxBody, send }: Bodies): Promise<CheckResult> {
  const logIn = (text: string): Promise<Reply> =>
    // Only a page of the console may log in.
    send(loginPath, { body: Buffer.from(text), headers: { "sec-fetch-site": "same-origin" } });
  const refusal = await send(publishPath, { body: new Uint8Array(0) }).catch(() => null);
  const [noFields, noEnd] = [await logIn("{}").catch(() => null), await logIn("{ ").catch(() => null)];
  const readsLogin = noFields?.status === 400 && !isSame(noFields, noEnd);
  const arriving = Math.min(maxBody, readWithoutToken);
  const tries: Try[] = [
    {
      bytes: maxBody,
      run: () => send(publishPath, { length: maxBody }),
      isPassed: (reply) => reply.status === 100 || (reply.status === 401 && isSame(reply, refusal)),
    },
    {
      bytes: arriving,
      run: () => logIn(`{${"}".padStart(arriving - 1)}`),
      isPassed: (reply) => readsLogin && isSame(reply, noFields),
    },
  ];
  for (const { bytes, run, isPassed } of tries) {
    const reply = await run().catch((error: unknown) => toErrorText(error));
    const size = formatMebibytes(bytes);
    if (typeof reply !== "string") {
      if (reply.status === 413)
        return problem(
          `${publicUrl} refuses bodies of ${size}`,
          `nginx: client_max_body_size ${Math.ceil((proxyShare * maxBody) / mebibyte)}m`,
        );
      if (isPassed(reply)) continue;
    }
    return warning(
      `whether ${publicUrl} passes bodies of ${size} is unknown: ` +
        (typeof reply === "string" ? reply : `it responded with status ${reply.status}`),
      "publish a message of this size through it with a token; if that fails, raise the limits of the proxy",
    );
  }
  const largest = maxBody > arriving ? `, and takes the length of ${formatMebibytes(maxBody)}` : "";
  return ok(`${publicUrl} passes paths and bodies of ${formatMebibytes(arriving)} on unchanged${largest}`);
}

const isSame = (reply: Reply, other: Reply | null): boolean =>
  reply.status === other?.status && reply.text === other.text;

/** A request with a large body, or with its length. */
type Try = { bytes: number; run(): Promise<Reply>; isPassed(reply: Reply): boolean };
type Bodies = { publicUrl: string; maxBody: number; send: Send };
type Send = (path: string, sent?: SentBody) => Promise<Reply>;
type Change = Pick<Probe, "change" | "fix">;

/** Compares the response to each path with that to a plain path that the server does not have. */
async function findPathChanges(send: Send, prefix: string): Promise<Change[]> {
  const unknown = await send("/v2/none");
  const changes: Change[] = [];
  for (const { path, part, change, fix } of listPathProbes(prefix)) {
    const reply = await send(path);
    if (reply.status === unknown.status && reply.text === unknown.text) continue;
    changes.push({
      change: reply.status === 200 ? change : `refuses ${part} with status ${reply.status}`,
      fix,
    });
  }
  return changes;
}

async function findQueryChanges(send: Send): Promise<Change[]> {
  const { status, text } = await send(`/v2/health?${queryName}`);
  if (status === 200) return [{ change: "drops the query", fix: queryFix }];
  if (text.includes(queryName)) return [];
  const isMerged = text.includes(queryName.replace("//", "/"));
  const change = isMerged ? "merges // in the query" : `refuses // in the query with status ${status}`;
  return [{ change, fix: queryFix }];
}

const formatMebibytes = (bytes: number): string => `${(bytes / mebibyte).toFixed(1)} MiB`;
