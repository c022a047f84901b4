import { Agent } from "node:http";
import type { Command } from "commander";
import { elapsed, systemClock } from "../engine/clock/clock.ts";
import type { Millis } from "../engine/core/values/basics.ts";
import { second } from "../engine/core/values/time.ts";
import { isSuccessStatus } from "../engine/core/values/status.ts";
import type { Api, ClientContext } from "./api.ts";
import { connectToApi, pause, tolerateOutages } from "./api.ts";
import { parseWhole } from "./filterFlags.ts";
import type { LocalCall, LocalResponse } from "./localRequest.ts";
import { sendLocally } from "./localRequest.ts";
import { findSourceOrigin } from "./sourceOrigin.ts";
import { CommandFailed, exitCodes } from "./terminal/commandFailed.ts";
import type { Fields } from "./terminal/fields.ts";
import { readLine, readNumber, readObject, readObjects, readRaw } from "./terminal/fields.ts";
import { note, print, styled } from "./terminal/terminal.ts";

/** The attempts are held this long, and held on while their requests run. */
const lease: Millis = 30 * second;
/** How long a pull waits for a message. */
const wait: Millis = 20 * second;
const firstPause: Millis = second;
const longestPause: Millis = 15 * second;
const maxConcurrency = 100;
/** How long a connector that stops waits for the requests that run. */
const lastWait: Millis = 5 * second;

const signals = ["SIGTERM", "SIGINT"] as const;

type ConnectFlags = { to: string; concurrency: string; source?: string };

/** Adds the command `waypost connect`. */
export function addConnectCommand(program: Command, context: ClientContext): void {
  program
    .command("connect")
    .description("pull the messages to an origin, and send them to a program on this machine")
    .argument("[origin]", "pulled origin, such as https://app.internal; see waypost pulled set")
    .requiredOption("--to <url>", "program that receives them, such as http://127.0.0.1:3000")
    .option("--source <name>", "pull the origin to which this source (its id or name) publishes")
    .option("--concurrency <n>", `requests at once, up to ${maxConcurrency}`, "10")
    .action(async (given: string | undefined, { to, concurrency: number, source }: ConnectFlags) => {
      const api = connectToApi(context);
      const target = parseTarget(to);
      const concurrency = parseWhole("--concurrency", number, maxConcurrency);
      const origin = await findOrigin(api, { given, source });
      const connector = new Connector(api, { origin, to: target, concurrency });
      let stoppedAt = -Infinity;
      const stop = (): void => {
        // One Ctrl-C can arrive several times: from the terminal and from each program in between.
        if (connector.isStopping) return elapsed() - stoppedAt > second ? leave(connector) : undefined;
        stoppedAt = elapsed();
        connector.stop();
      };
      for (const signal of signals) process.on(signal, stop);
      try {
        await connector.run(() => print(`connected ${origin} to ${to} (Ctrl-C stops it)`));
      } finally {
        for (const signal of signals) process.off(signal, stop);
      }
      if (connector.running > 0) leave(connector);
    });
}

/** Ends the process, and says what happens to the requests that run. */
function leave({ running }: Connector): never {
  note(
    `waypost: cut off ${formatCount(running, "request")}: without a report, the attempts fail within ` +
      `${lease / second} s, and Waypost sends the messages again if they have retries left`,
  );
  process.exit(exitCodes.interrupted);
}

/** Returns the origin that a command names, or that of the source that it names. */
function findOrigin(
  api: Api,
  { given, source }: { given: string | undefined; source: string | undefined },
): string | Promise<string> {
  if (given !== undefined && source === undefined) return given;
  if (given === undefined && source !== undefined) return findSourceOrigin(api, source);
  throw new CommandFailed("usage", "connect: give either an origin or --source");
}

function parseTarget(text: string): URL {
  const url = URL.parse(text);
  if (url?.protocol !== "http:" || url.pathname !== "/" || url.search !== "" || url.username !== "")
    throw new CommandFailed("usage", `--to: "${text}" is not an address such as http://127.0.0.1:3000`);
  return url;
}

type ConnectorOptions = { origin: string; to: URL; concurrency: number };

/**
 * Pulls the messages to an origin, no more than it can start at once, sends each to a local program, and
 * reports the response. Several connectors share the messages.
 */
class Connector {
  readonly #api: Api;
  readonly #options: ConnectorOptions;
  readonly #stopping = new AbortController();
  readonly #running = new Set<Promise<void>>();
  readonly #calls = new Set<LocalCall>();
  #returned = 0;
  readonly #local = new Agent({ keepAlive: true });
  #remote: Agent | null = null;

  constructor(api: Api, options: ConnectorOptions) {
    this.#api = api;
    this.#options = options;
  }

  /** The number of requests that run. */
  get running(): number {
    return this.#running.size;
  }

  /** Reports whether `stop` was called. */
  get isStopping(): boolean {
    return this.#stopping.signal.aborted;
  }

  /**
   * Pulls nothing more, and gives back the attempts whose requests were not sent yet. A pull in flight is
   * given up, and the server then gives its messages to others.
   */
  stop(): void {
    this.#stopping.abort();
    const sent = [...this.#calls].filter((call) => !call.withdraw()).length;
    if (sent === 0) return;
    const what = formatCount(sent, "running request");
    note(`waypost: waits up to ${lastWait / second} s for ${what}; another Ctrl-C cuts them off`);
  }

  /**
   * Works until `stop` is called, and then waits a little for the requests that run. Fails if the server
   * refuses to give messages. `begun` is called when the server has accepted the first pull.
   */
  async run(begun: () => void): Promise<void> {
    this.#remote = await openAgent(this.#api.url);
    const attempt = tolerateOutages();
    let span = firstPause;
    let hasBegun = false;
    while (!this.isStopping) {
      const startedAt = elapsed();
      let hasWorked = false;
      await attempt(async () => {
        // The first pull does not wait, so that it is known at once whether it is accepted.
        await this.#pull(hasBegun ? wait : 0, () => {
          if (!hasBegun) begun();
          hasBegun = true;
        });
        hasWorked = true;
      });
      if (hasWorked) span = firstPause;
      else if (!this.isStopping && elapsed() - startedAt < longestPause) {
        await pause(span);
        span = Math.min(longestPause, 2 * span);
      }
    }
    const ended = new AbortController();
    const last = systemClock.sleep(systemClock.now() + lastWait, ended.signal);
    await Promise.race([Promise.all(this.#running), last]);
    ended.abort();
    if (this.#returned > 0)
      note(`waypost: gave back ${formatCount(this.#returned, "message")}, not sent to the program`);
    if (this.#running.size > 0) return;
    this.#local.destroy();
    this.#remote.destroy();
  }

  async #pull(span: Millis, accepted: () => void): Promise<void> {
    const { origin, concurrency } = this.#options;
    if (this.#running.size >= concurrency) await Promise.race(this.#running);
    const request = {
      ...{ origin, max: concurrency - this.#running.size },
      ...{ wait: `${span / second}s`, lease: `${lease / second}s` },
    };
    const pulled = await this.#api
      .read({
        ...{ method: "POST", path: "/v2/pull", body: JSON.stringify(request) },
        headers: { "content-type": "application/json" },
        needs: { one: { attempts: "objects" } },
        signal: this.#stopping.signal,
        ...(this.#remote && { agent: this.#remote }),
      })
      .catch((error: unknown) => {
        if (this.isStopping) return null;
        throw isOutage(error) ? new CommandFailed("unavailable", error.message) : error;
      });
    if (pulled === null) return;
    accepted();
    for (const attempt of readObjects(pulled, "attempts")) {
      const working = this.#work(attempt).finally(() => this.#running.delete(working));
      this.#running.add(working);
    }
  }

  /** Sends the request of an attempt, and reports the response. Never rejects. */
  async #work(attempt: Fields): Promise<void> {
    const ended = new AbortController();
    const token = readRaw(attempt, "attempt");
    const startedAt = elapsed();
    const holding = this.#hold(token, ended);
    const url = new URL(readRaw(attempt, "url"));
    try {
      const response = this.isStopping ? null : await this.#call(attempt, { url, signal: ended.signal });
      ended.abort();
      if (response === null) {
        await this.#send(token, { outcome: "returned" });
        this.#returned++;
        return;
      }
      const took = `${Math.round(elapsed() - startedAt)} ms`;
      const failure = response.error === undefined ? "" : `  ${response.error}`;
      const style = isSuccessStatus(response.status) ? "green" : "red";
      const line = `${readLine(attempt, "method")} ${url.pathname}`;
      print(`${line}  ${styled(style, String(response.status))}  ${styled("dim", took)}${failure}`);
      if (response.cutAfter !== undefined)
        note(`waypost: the response is longer than ${response.cutAfter} bytes, and its rest is dropped`);
      await this.#report(attempt, response);
    } catch (error) {
      note(`waypost: ${readLine(attempt, "messageId")}: ${readReason(error)}`);
    } finally {
      ended.abort();
      await holding;
    }
  }

  /** Sends the request of an attempt. Returns null if it was withdrawn. */
  async #call(
    attempt: Fields,
    { url, signal }: { url: URL; signal: AbortSignal },
  ): Promise<LocalResponse | null> {
    const call = sendLocally(
      {
        ...{ method: readRaw(attempt, "method"), url, timeout: readNumber(attempt, "timeout") ?? lease },
        headers: readObject(attempt, "headers") as Readonly<Record<string, readonly string[]>>,
        body: Buffer.from(readRaw(attempt, "bodyBase64"), "base64"),
      },
      { to: this.#options.to, agent: this.#local, signal },
    );
    this.#calls.add(call);
    try {
      return await call.response;
    } finally {
      this.#calls.delete(call);
    }
  }

  /** Holds an attempt until its request has ended. Ends the request if the attempt has ended. */
  async #hold(token: string, ended: AbortController): Promise<void> {
    for (;;) {
      await systemClock.sleep(systemClock.now() + lease / 3, ended.signal);
      if (ended.signal.aborted) return;
      try {
        await this.#sendOnce(token, { extend: `${lease / second}s` });
      } catch (error) {
        if (isOutage(error) || ended.signal.aborted) continue;
        ended.abort(new Error(`the request to the local program is ended, because ${readReason(error)}`));
      }
    }
  }

  /**
   * Reports a response. If it has more headers or a longer body than a report may have, the server refuses
   * the report. Then only the status is reported. Without it, the work would be done again.
   */
  async #report(attempt: Fields, { status, headers, body }: LocalResponse): Promise<void> {
    const token = readRaw(attempt, "attempt");
    const outcome = isSuccessStatus(status) ? "ok" : "failed";
    try {
      await this.#send(token, { outcome, status, headers, bodyBase64: body.toString("base64") });
    } catch (error) {
      if (isOutage(error)) throw error;
      const reason = readReason(error);
      try {
        await this.#send(token, { outcome, status });
      } catch (again) {
        // The step that a workflow posts in the request is the outcome, and has ended the attempt.
        if (outcome === "ok" && isOfRun(attempt)) return;
        throw new Error(`the local program answered ${status}, but ${readReason(again)}`, { cause: again });
      }
      note(`waypost: only the status of the response is reported: ${reason}`);
    }
  }

  /** Sends a report. Repeats it while the server is unavailable and the attempt may be held. */
  async #send(token: string, report: object): Promise<void> {
    const until = elapsed() + lease;
    for (let span = second / 4; ; span = Math.min(longestPause, 2 * span)) {
      try {
        return void (await this.#sendOnce(token, report));
      } catch (error) {
        if (!isOutage(error) || elapsed() > until) throw error;
        await pause(span);
      }
    }
  }

  #sendOnce(token: string, body: object): Promise<unknown> {
    return this.#api.call({
      ...{ method: "POST", path: "/v2/attempts", body: JSON.stringify(body) },
      headers: { "content-type": "application/json", "svc-attempt": token },
      needs: { one: { messageId: "string" } },
      ...(this.#remote && { agent: this.#remote }),
    });
  }
}

/** Returns what keeps connections to the server for later requests. */
async function openAgent(url: string): Promise<Agent> {
  const Kind = url.startsWith("https:") ? (await import("node:https")).Agent : Agent;
  return new Kind({ keepAlive: true });
}

/** Reports whether the request of an attempt calls a workflow. */
const isOfRun = (attempt: Fields): boolean =>
  Object.keys(readObject(attempt, "headers")).some((name) => /^(?:svc|upstash)-workflow-runid$/i.test(name));

const formatCount = (count: number, one: string): string => `${count} ${one}${count === 1 ? "" : "s"}`;

const readReason = (error: unknown): string => (error instanceof Error ? error.message : "refused");

/** Reports whether an error may pass: the server cannot be reached, is at capacity, or has failed itself. */
const isOutage = (error: unknown): error is CommandFailed =>
  error instanceof CommandFailed && (error.exitCode === exitCodes.unavailable || error.isOfServer);
