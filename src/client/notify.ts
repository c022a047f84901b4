import type { Command } from "commander";
import type { Api, ClientContext, OutputFlags } from "./api.ts";
import { connectToApi, printShown, withJson } from "./api.ts";
import { apiPath } from "./apiPath.ts";
import { readBody } from "./requestFlags.ts";
import { CommandFailed } from "./terminal/commandFailed.ts";
import { isObject, readObjects, readRaw } from "./terminal/fields.ts";
import { toSafeLine } from "./terminal/safeText.ts";

type NotifyFlags = OutputFlags & { body?: string; bodyFile?: string; contentType?: string };

/** Adds `waypost runs notify`. */
export function addNotifyCommand(runs: Command, context: ClientContext): void {
  const command = runs
    .command("notify")
    .description("notify a run of the event that it waits for")
    .argument("<id>", "id of the run")
    .argument("[event]", "id of the event; by default, the only one that the run waits for")
    .option("--body <text>", "data of the event")
    .option("--body-file <file>", "file with the data; - reads the input")
    .option("--content-type <type>", "content type of the data");
  withJson(command).action(async (id: string, event: string | undefined, flags: NotifyFlags) => {
    const body = readBody(flags.body, flags.bodyFile);
    const api = connectToApi(context);
    const waited = event ?? (await findWaitedEvent(api, id));
    const result = await api.call({
      method: "POST",
      path: apiPath`/v2/notify/${id}/${waited}`,
      headers: flags.contentType === undefined ? {} : { "content-type": flags.contentType },
      ...(body !== undefined && { body }),
      needs: { each: { workflowRunId: "string" } },
    });
    const notified = Array.isArray(result) ? result.filter(isObject) : [];
    const steps = notified.filter((one) => isObject(one["waiter"])).length;
    const line =
      steps === 0
        ? "keeps the event; its next step that waits for it receives it"
        : `was notified of ${JSON.stringify(waited)}${steps === 1 ? "" : ` in ${steps} steps`}`;
    printShown(flags, { value: result, describe: () => [`${toSafeLine(id)} ${toSafeLine(line)}`] });
  });
}

/** Returns the id of the only event that a run waits for. Fails if there is none, or if there are several. */
async function findWaitedEvent(api: Api, id: string): Promise<string> {
  const path = apiPath`/v2/workflows/runs/${id}/status`;
  const status = await api.read({ path, needs: { one: { text: "string" } } });
  const waiting = readObjects(status, "waitingOn").filter((one) => readRaw(one, "reason") === "event");
  const [event, ...others] = [...new Set(waiting.map((one) => readRaw(one, "eventId")))];
  const run = toSafeLine(id);
  if (event === undefined)
    throw new CommandFailed("failed", `${run}: waits for no event; ${toSafeLine(readRaw(status, "text"))}`);
  if (others.length === 0) return event;
  const names = [event, ...others].map((one) => toSafeLine(JSON.stringify(one))).join(", ");
  throw new CommandFailed("usage", `${run}: waits for several events; name one of ${names}`);
}
