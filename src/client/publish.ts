import type { Command } from "commander";
import type { ClientContext, OutputFlags } from "./api.ts";
import { apiPath } from "./apiPath.ts";
import { connectToApi, printShown, withJson } from "./api.ts";
import type { NeededFields } from "./responseFields.ts";
import { CommandFailed } from "./terminal/commandFailed.ts";
import { isObject, readLine } from "./terminal/fields.ts";
import { collectValues, readBody, toRequestHeaders } from "./requestFlags.ts";

type PublishFlags = OutputFlags & {
  body?: string;
  bodyFile?: string;
  contentType?: string;
  header?: string[];
  method?: string;
  delay?: string;
  retries?: string;
  label?: string[];
  queue?: string;
  key?: string;
  keyValue?: string;
  deduplicationId?: string;
  runId?: string;
};

/** Adds the commands `waypost publish` and `waypost trigger`. */
export function addPublishCommands(program: Command, context: ClientContext): void {
  const withBody = (command: Command): Command =>
    withJson(command)
      .option("--body <text>", "body")
      .option("--body-file <file>", "file with the body; - reads the input")
      .option("--content-type <type>", "content type of the body")
      .option(
        "-H, --header <header>",
        "header or setting, such as 'Svc-Timeout: 30s'; may be repeated",
        collectValues,
      )
      .option("--delay <duration>", "time until it is sent, such as 10m")
      .option("--retries <n>", "maximum number of retries")
      .option("--label <label>", "label; may be repeated", collectValues)
      .option("--key <key>", "flow-control key")
      .option("--key-value <limits>", "limits of the flow-control key, such as parallelism=5");
  withBody(
    program
      .command("publish")
      .description("publish a message")
      .argument("<destination>", "URL, or name of a URL group"),
  )
    .option("--queue <name>", "queue to publish through")
    .option("--method <method>", "HTTP method of the delivery")
    .option("--deduplication-id <id>", "deduplication id; a second message with this id is not accepted")
    .action(async (destination: string, flags: PublishFlags) => {
      const queue = flags.queue;
      const base = queue === undefined ? "/v2/publish/" : apiPath`/v2/enqueue/${queue}/`;
      const path = `${base}${requireDestination(destination)}`;
      const message = { messageId: "string" } as const;
      const result = await send(context, { path, flags, needs: { one: message, each: message } });
      // A URL group has a message for each endpoint.
      const made = Array.isArray(result) ? result.filter(isObject) : isObject(result) ? [result] : [];
      const describe = (): string[] =>
        made.map((message) => {
          const note = message["deduplicated"] === true ? "  accepted earlier; this one was dropped" : "";
          return `${readLine(message, "messageId")}  ${readLine(message, "url")}${note}`.trimEnd();
        });
      printShown(flags, { value: result, describe });
    });
  withBody(
    program.command("trigger").description("start a workflow run").argument("<url>", "URL of the workflow"),
  )
    .option("--run-id <id>", "id of the run")
    .action(async (url: string, flags: PublishFlags) => {
      const path = `/v2/trigger/${requireDestination(url)}`;
      const result = await send(context, { path, flags, needs: { one: { workflowRunId: "string" } } });
      const run = isObject(result) ? result : {};
      printShown(flags, { value: result, describe: () => [readLine(run, "workflowRunId")] });
    });
}

/** Returns a destination as the path has it: unchanged, because the server reads it as it was written. */
function requireDestination(destination: string): string {
  if (/^[\x21-\x7e]+$/.test(destination) && !destination.includes("#")) return destination;
  throw new CommandFailed(
    "usage",
    "destination: write spaces, # and other special characters as %20, %23 and so on",
  );
}

type Sent = { path: string; flags: PublishFlags; needs: NeededFields };

function send(context: ClientContext, { path, flags, needs }: Sent): Promise<unknown> {
  const body = readBody(flags.body, flags.bodyFile);
  const settings = {
    "content-type": flags.contentType,
    "svc-method": flags.method,
    "svc-delay": flags.delay,
    "svc-retries": flags.retries,
    "svc-label": flags.label?.join(","),
    "svc-flow-control-key": flags.key,
    "svc-flow-control-value": flags.keyValue,
    "svc-deduplication-id": flags.deduplicationId,
    "svc-workflow-runid": flags.runId,
  };
  const headers = toRequestHeaders(flags.header ?? [], settings);
  return connectToApi(context).call({ method: "POST", path, headers, body: body ?? "", needs });
}
