/** The version of the tables and functions in the database of a user. */
export const outboxVersion = 1;

/** The schema that is used if none is named. */
export const defaultSchema = "waypost";

const namePattern = /^[a-z_][a-z0-9_]{0,40}$/;

/** Reports whether a string can be the name of a schema or a role. Such a name needs no quotes. */
export const isPlainName = (text: string): boolean => namePattern.test(text);

/** The names in the statements. `app` may publish, and `login` is the login of the server. */
export type SchemaNames = { schema: string; app?: string | undefined; login?: string | undefined };

/**
 * Returns the SQL that creates the outbox in the database of a user. It can be run again: it then adds what
 * is missing, and keeps all rows. All names must be plain names.
 */
export const formatSchemaSql = ({ schema, app, login }: SchemaNames): string =>
  [
    `-- The outbox of Waypost, version ${outboxVersion}. For PostgreSQL 13 or later. It can be run again.`,
    "begin;\n",
    formatRole(schema),
    formatTables(schema),
    formatAddRow(schema),
    ...listFunctions(schema).map((one) => formatFunction(schema, one)),
    formatPutBack(schema),
    formatRights(schema),
    app === undefined
      ? "-- The role of your application: waypost outbox sql --role <name>"
      : formatGrants(schema, app),
    login === undefined
      ? "-- The login of the server: waypost outbox sql --login <name>"
      : `grant ${schema}_relay to ${login};`,
    "\ncommit;\n",
  ].join("\n");

/** The one who runs this gives the objects to the role, and must therefore be a member. */
const formatRole = (schema: string): string => `do $$ begin
  if not exists (select from pg_roles where rolname = '${schema}_relay') then
    create role ${schema}_relay nologin;
  end if;
  if not pg_has_role(current_user, '${schema}_relay', 'usage') then
    execute format('grant ${schema}_relay to %I', current_user);
  end if;
end $$;
`;

/** The columns of a row, in both tables. */
const rowColumns = `key uuid not null,
  created_at timestamptz not null default clock_timestamp(),
  is_workflow boolean not null,
  destination text not null,
  body bytea not null,
  settings jsonb not null,
  headers jsonb not null`;

const formatTables = (schema: string): string => `create schema if not exists ${schema};

create table if not exists ${schema}.outbox (
  id bigint generated always as identity primary key,
  ${rowColumns}
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

create table if not exists ${schema}.outbox_rejected (
  id bigint primary key,
  ${rowColumns},
  rejected_at timestamptz not null default clock_timestamp(),
  reason text not null
);

-- One row: the server that takes the rows, and whether it waits for a notification.
create table if not exists ${schema}.relay (
  one boolean primary key default true check (one),
  version integer not null,
  owner text,
  is_asleep boolean not null default false
);
insert into ${schema}.relay (version) values (${outboxVersion})
  on conflict (one) do update set version = excluded.version;
`;

const safePath = (schema: string): string => `set search_path = pg_catalog, ${schema}, pg_temp`;

const formatAddRow = (schema: string): string => `create or replace function ${schema}.add_row(
  is_workflow boolean, destination text, body bytea, settings jsonb, headers jsonb
) returns uuid language plpgsql security definer ${safePath(schema)} as $$
declare
  new_key uuid := gen_random_uuid();
begin
  if destination is null or destination = '' then
    raise exception 'outbox: destination is missing';
  end if;
  settings := coalesce(settings, '{}');
  headers := coalesce(headers, '{}');
  if jsonb_typeof(settings) <> 'object' or jsonb_typeof(headers) <> 'object' then
    raise exception 'outbox: settings and headers must be JSON objects';
  end if;
  insert into ${schema}.outbox (key, is_workflow, destination, body, settings, headers)
    values (new_key, is_workflow, destination, coalesce(body, ''), settings, headers);
  if (select is_asleep from ${schema}.relay) then
    perform pg_notify('${schema}_outbox', '');
  end if;
  return new_key;
end $$;

-- Returns headers with the content type of JSON, unless they have one.
create or replace function ${schema}.json_headers(headers jsonb)
  returns jsonb language sql stable ${safePath(schema)} as $$
  select case
    when exists (
      select from jsonb_object_keys(coalesce(headers, '{}')) as name where lower(name) = 'content-type'
    ) then headers
    else coalesce(headers, '{}') || '{"Content-Type": "application/json"}'
  end
$$;
`;

type SqlFunction = { name: string; args: string; call: string };

const formatFunction = (schema: string, { name, args, call }: SqlFunction): string =>
  `create or replace function ${schema}.${name}(${args})
  returns uuid language sql security definer ${safePath(schema)} as $$
  select ${schema}.add_row(${call})
$$;
`;

const formatPutBack = (
  schema: string,
): string => `-- Moves rejected rows back to the outbox: one by its key, or all. Returns their number.
create or replace function ${schema}.put_back(rejected uuid default null)
  returns bigint language sql security definer ${safePath(schema)} as $$
  with taken as (
    delete from ${schema}.outbox_rejected where rejected is null or key = rejected returning *
  ), added as (
    insert into ${schema}.outbox (key, is_workflow, destination, body, settings, headers)
      select key, is_workflow, destination, body, settings, headers from taken order by id
      returning 1
  ) select count(*) from added
$$;
`;

const formatRights = (schema: string): string => `grant create, usage on schema ${schema} to ${schema}_relay;
${ownedTables.map((name) => `alter table ${schema}.${name} owner to ${schema}_relay;`).join("\n")}
${signatures.map((one) => `alter function ${schema}.${one} owner to ${schema}_relay;`).join("\n")}
revoke create on schema ${schema} from ${schema}_relay;
revoke all on schema ${schema} from public;
revoke all on all tables in schema ${schema} from public;
revoke all on all functions in schema ${schema} from public;
`;

const ownedTables = ["outbox", "outbox_rejected", "relay"];

const bodyTypes = ["text", "jsonb", "bytea"] as const;

/** The functions that an application may call. */
const publicSignatures = bodyTypes.flatMap((type) => [
  `publish(text, ${type}, jsonb, jsonb)`,
  `trigger(text, ${type}, jsonb)`,
]);
const signatures = [
  "add_row(boolean, text, bytea, jsonb, jsonb)",
  "json_headers(jsonb)",
  ...publicSignatures,
  "put_back(uuid)",
];

const formatGrants = (schema: string, app: string): string =>
  [
    `grant usage on schema ${schema} to ${app};`,
    ...publicSignatures.map((one) => `grant execute on function ${schema}.${one} to ${app};`),
  ].join("\n");

/** Returns `publish` and `trigger` for each type of a body. */
function listFunctions(schema: string): SqlFunction[] {
  return bodyTypes.flatMap((type) => {
    const bytes = type === "bytea" ? "body" : `convert_to(body${type === "jsonb" ? "::text" : ""}, 'UTF8')`;
    const headers = type === "jsonb" ? `${schema}.json_headers(headers)` : "headers";
    return [
      {
        name: "publish",
        args: `destination text, body ${type}, settings jsonb default '{}', headers jsonb default '{}'`,
        call: `false, destination, ${bytes}, settings, ${headers}`,
      },
      {
        name: "trigger",
        args: `workflow_url text, body ${type}, settings jsonb default '{}'`,
        call: `true, workflow_url, ${bytes}, settings, '{}'`,
      },
    ];
  });
}
