import type { Command } from "commander";
import type { ClientContext, OutputFlags } from "../../client/api.ts";
import { apiPath } from "../../client/apiPath.ts";
import { connectToApi, printShown, showResult, withJson, withOutput } from "../../client/api.ts";
import { columnsOf } from "../../client/columns.ts";
import { describeJob, followJob, neededOfJob, readJob } from "../../client/jobProgress.ts";
import { addListCommand } from "../../client/listCommand.ts";
import { jobFields } from "./fields.ts";

/** Adds the commands `waypost jobs …`. */
export function addJobCommands(program: Command, context: ClientContext): void {
  const jobs = program.command("jobs").description("list, follow and stop bulk actions");
  addListCommand(
    jobs,
    {
      path: "/v2/jobs",
      rows: "jobs",
      pageSize: null,
      filters: [],
      none: "no jobs",
      columns: columnsOf(jobFields, [
        "jobId",
        "action",
        "state",
        "total",
        "done",
        "failed",
        "createdAt",
        "error",
      ]),
    },
    { context, about: "list jobs, the newest first" },
  );
  const withId = (name: string, about: string): Command =>
    jobs.command(name).description(about).argument("<id>", "id of the job");
  withOutput(withId("get", "show a job")).action((id: string, flags: OutputFlags) => {
    const api = connectToApi(context);
    return showResult(flags, async () => {
      const job = await readJob(api, id);
      return { value: job, describe: () => describeJob(job) };
    });
  });
  withJson(withId("wait", "show the progress of a job until it has ended")).action(
    (id: string, flags: OutputFlags) => followJob(connectToApi(context), id, { flags }),
  );
  withJson(withId("stop", "stop a job after the entries that it is handling")).action(
    async (id: string, flags: OutputFlags) => {
      const path = apiPath`/v2/jobs/${id}`;
      const job = await connectToApi(context).read({ method: "DELETE", path, needs: neededOfJob });
      printShown(flags, { value: job, describe: () => describeJob(job) });
    },
  );
}
