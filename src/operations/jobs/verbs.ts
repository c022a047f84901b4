import type { Command } from "commander";
import type { ClientContext, OutputFlags } from "../../client/api.ts";
import { apiPath } from "../../client/apiPath.ts";
import { connectToApi, printShown, showResult, withJson, withOutput } from "../../client/api.ts";
import { ageField, field, numberField } from "../../client/columns.ts";
import { describeJob, followJob, jobFields, readJob } from "../../client/jobProgress.ts";
import { addListCommand } from "../../client/listCommand.ts";

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
      columns: [
        field("JOB", "jobId"),
        field("ACTION", "action"),
        field("STATE", "state"),
        numberField("TOTAL", "total"),
        numberField("DONE", "done"),
        numberField("FAILED", "failed"),
        ageField("CREATED", "createdAt"),
        { ...field("ERROR", "error"), shrinks: true },
      ],
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
      const job = await connectToApi(context).read({ method: "DELETE", path, needs: jobFields });
      printShown(flags, { value: job, describe: () => describeJob(job) });
    },
  );
}
