-- Workflow runs.

alter table messages add column
  run text;
create index messages_run on messages (account, run, id) where run is not null;

-- A run as it began, and as it ended. `failed` and `ended_at` tell when it is past its time.
create table runs (
  account text not null,
  id text not null,
  failed integer not null,
  ended_at bigint,
  detail text not null,
  body bytea,
  primary key (account, id)
) /*sqlite: without rowid */;
create index runs_end on runs (account, failed, ended_at, id) where ended_at is not null;

-- Runs that have not ended, by the names that their callers gave them. Small: every step changes one.
create table active_runs (
  account text not null,
  run_id text not null,
  run text not null,
  steps integer not null,
  size bigint not null,
  first_message text not null,
  primary key (account, run_id)
) /*sqlite: without rowid */ /*postgres: with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000) */;

-- The histories of runs. An id is that of the run, and the name of the step in it, so that a history lies together.
create table steps (
  account text not null,
  id text not null,
  position integer not null,
  message_id text not null,
  call_type text not null,
  created_at bigint not null,
  detail text not null,
  body bytea,
  primary key (account, id)
) /*sqlite: without rowid */;

create table waiters (
  account text not null,
  id text not null,
  kind text not null,
  event text not null,
  due_at bigint,
  detail text not null,
  primary key (account, id)
) /*sqlite: without rowid */;
create index waiters_event on waiters (account, event, id);
create index waiters_due on waiters (due_at, account, id) where due_at is not null;

-- Events that came before anything waited for them.
create table notifications (
  account text not null,
  id text not null,
  kind text not null,
  event text not null,
  created_at bigint not null,
  body bytea,
  primary key (account, id)
) /*sqlite: without rowid */;
