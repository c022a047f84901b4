import { readFileSync } from "node:fs";
import type { Command } from "commander";
import type { ClientContext, OutputFlags } from "../../client/api.ts";
import { connectToApi, printShown, withJson } from "../../client/api.ts";
import { apiPath } from "../../client/apiPath.ts";
import { columnsOf } from "../../client/columns.ts";
import { addListCommand } from "../../client/listCommand.ts";
import { CommandFailed } from "../../client/terminal/commandFailed.ts";
import { readLine } from "../../client/terminal/fields.ts";
import { outboxFields } from "./fields.ts";
import { defaultSchema, formatSchemaSql, isPlainName } from "./schemaSql.ts";

type SqlFlags = { schema: string; role?: string; login?: string };
type AddFlags = OutputFlags & { databaseUrlFile: string; tokenFile: string; schema?: string; pooled?: true };

const needed = { one: { name: "string", state: "string" } } as const;

/** Adds the commands `waypost outbox …`. */
export function addOutboxCommands(program: Command, context: ClientContext): void {
  const outbox = program
    .command("outbox")
    .description("publish inside transactions of a PostgreSQL database");
  outbox
    .command("sql")
    .description("print the SQL that creates the outbox in your database; it can be run again")
    .option("--schema <name>", "schema to create", defaultSchema)
    .option("--role <name>", "role of your application, which may then publish")
    .option("--login <name>", "login that the server uses")
    .action(({ schema, role, login }: SqlFlags) => {
      for (const [flag, name] of Object.entries({ schema, role, login }))
        if (name !== undefined && !isPlainName(name))
          throw new CommandFailed("usage", `--${flag}: use only a-z, 0-9 and _, and at most 41 characters`);
      process.stdout.write(formatSchemaSql({ schema, app: role, login }));
    });
  addListCommand(
    outbox,
    {
      path: "/v2/outboxes",
      rows: "outboxes",
      pageSize: null,
      filters: [],
      none: "no outboxes",
      columns: columnsOf(outboxFields, [
        ...(["name", "state", "taken", "takenAt", "waiting", "oldestAt", "rejected", "error"] as const),
      ]),
    },
    { context, about: "list outboxes" },
  );
  const withName = (name: string, about: string): Command =>
    withJson(outbox.command(name).description(about).argument("<name>", "name of the outbox"));
  const show = (flags: OutputFlags, result: Record<string, unknown>): void =>
    printShown(flags, {
      value: result,
      describe: () => [`${readLine(result, "name")}  ${readLine(result, "state")}`],
    });
  withName("add", "take the rows of a database, or change an outbox")
    .requiredOption("--database-url-file <file>", "file with the URL of the database; - reads the input")
    .requiredOption("--token-file <file>", "file with the token whose rights apply to every row")
    .option("--schema <name>", `schema in the database; ${defaultSchema} by default`)
    .option("--pooled", "the URL leads to a pooler in transaction mode")
    .action(async (name: string, { databaseUrlFile, tokenFile, schema, pooled, ...flags }: AddFlags) => {
      const body = JSON.stringify({
        databaseUrl: readSecret("--database-url-file", databaseUrlFile),
        token: readSecret("--token-file", tokenFile),
        ...(schema !== undefined && { schema }),
        ...(pooled && { pooled }),
      });
      const headers = { "content-type": "application/json" };
      const path = apiPath`/v2/outboxes/${name}`;
      show(flags, await connectToApi(context).read({ method: "PUT", path, body, headers, needs: needed }));
    });
  withName("remove", "take no more rows of a database").action(async (name: string, flags: OutputFlags) => {
    const path = apiPath`/v2/outboxes/${name}`;
    const needs = { one: { deleted: "boolean" } } as const;
    const result = await connectToApi(context).read({ method: "DELETE", path, needs });
    const line = result["deleted"] === true ? `${name} was removed` : `there is no outbox ${name}`;
    printShown(flags, { value: result, describe: () => [line] });
  });
  withName("take-over", "take the rows of a database that another server takes now").action(
    async (name: string, flags: OutputFlags) => {
      const path = apiPath`/v2/outboxes/${name}/take-over`;
      show(flags, await connectToApi(context).read({ method: "POST", path, needs: needed }));
    },
  );
}

/** Returns a secret in a file, which is not visible in the list of processes as a flag would be. */
function readSecret(flag: string, file: string): string {
  try {
    return readFileSync(file === "-" ? 0 : file, "utf8").trim();
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new CommandFailed("usage", `${flag}: ${file} cannot be read (${reason})`);
  }
}
