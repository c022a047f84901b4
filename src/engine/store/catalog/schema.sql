-- The schema of the store: one text for SQLite and PostgreSQL.
--
-- SQL for one database is in a marked comment, `/*sqlite: ...*/` or `/*postgres: ...*/`; see `schema.ts`.
-- Both databases compare text byte by byte, so ids sort by time. On SQLite, `without rowid` keeps the rows of
-- a table in the order of their primary key.
--
-- Most tables have the same three columns:
--   account  the account to which the row belongs
--   detail   JSON with everything that no query searches for
--   body     the bytes of a request or a response; null if there are none
-- All times are milliseconds since 1970.
--
-- On PostgreSQL:
--   - A smaller fill factor leaves room on each page, so that an updated row stays on its page and its
--     indexes need not change.
--   - Tables whose rows come and go quickly are vacuumed early. They are not truncated, because that would
--     lock them.
--   - Some indexes have a condition that is always true, such as `id <> ''`. The planner uses such an index
--     only for a query that has the same condition; see docs/decisions/0041.

-- ----- Accounts --------------------------------------------------------------------------------------------

create table accounts (
  id text primary key,
  token_hash text not null unique,
  detail text not null
) /*sqlite: without rowid */;

-- Additional tokens of an account, each with its own permissions.
create table tokens (
  account text not null,
  id text not null,
  token_hash text not null unique,
  detail text not null,
  primary key (account, id)
) /*sqlite: without rowid */;

-- Changes of an account's settings, and the callers that made them. An id sorts by time.
create table audit (
  account text not null,
  id text not null,
  time bigint not null,
  action text not null,
  detail text not null,
  primary key (account, id)
) /*sqlite: without rowid */;

-- Settings of the server as a whole.
create table server_settings (
  id text primary key,
  detail text not null
) /*sqlite: without rowid */;

-- Usage counters to which each batch adds. An id names the period and the node, so that nodes never update
-- the same row.
create table usage (
  account text not null,
  id text not null,
  messages bigint not null,
  workflow_messages bigint not null,
  workflow_runs bigint not null,
  delivered bigint not null,
  failed bigint not null,
  cancelled bigint not null,
  workflow_delivered bigint not null,
  workflow_failed bigint not null,
  workflow_cancelled bigint not null,
  bytes_in bigint not null,
  bytes_out bigint not null,
  dead_letters bigint not null,
  stored_bytes bigint not null,
  primary key (account, id)
) /*sqlite: without rowid */
  /*postgres: with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000) */;

-- How many rows of some kinds all accounts have together: see `engine/core/explain/storeCounts.ts`. Each batch adds
-- to them. The rows of all nodes are summed up; those without a node are merged from nodes that have ended.
create table store_counts (
  node text not null,
  name text not null,
  value bigint not null,
  primary key (node, name)
) /*sqlite: without rowid */
  /*postgres: with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000, vacuum_truncate = false) */;

-- The number of requests in a day, for accounts whose requests are limited. The row is overwritten on the
-- next day.
create table day_counts (
  account text not null,
  day bigint not null,
  requests bigint not null,
  primary key (account)
) /*sqlite: without rowid */;

-- The number of requests in a second, for accounts whose requests are limited. All nodes share the row, and
-- the next second overwrites it.
create table second_counts (
  account text not null,
  second bigint not null,
  requests bigint not null,
  primary key (account)
) /*sqlite: without rowid */
  /*postgres: with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000) */;

-- ----- Messages --------------------------------------------------------------------------------------------

-- A message as it was accepted. Written once. The rows are too large to be kept in the B-tree of their key.
-- `checksum` is the CRC-32 of the row without its body, and `body_checksum` is the CRC-32 of the body; see
-- docs/decisions/0060. Both are null on PostgreSQL, which has its own checksums.
create table stored_messages (
  account text not null,
  id text not null,
  detail text not null,
  body bytea,
  checksum integer,
  body_checksum integer,
  primary key (account, id)
) /*postgres: with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000) */;

-- The state of an unfinished message. Small and updated often. The row is deleted when the message finishes.
--   due_at               when to send the message, or when its lease ends
--   lost_attempts        attempts whose lease ended without an outcome
--   ended_attempts       attempts that an operator ended
--   started_at           when the running attempt began; null until its lease is renewed
--   leased_by            the node that is sending the message
--   counted_to_account   1: the lease counts towards the limit of concurrent deliveries of the account
--   counted_to_endpoint  1: the lease counts towards the limit of the account for one endpoint
--   host, endpoint       where the message goes
--   size                 bytes of the body
--   reports_outcome      1: a callback or another message needs the outcome
--   queue_slot           the slot of a queue that the message occupies; see `queue_slots`
--   waitlist             the waitlist of a held message: that of a host or of a limiter
--   run                  the workflow run to which the message belongs
--   tags                 what lists can be filtered by, separated by spaces; see `tags`
--   time_keys            the keys of this message in `time_index`, separated by spaces
create table messages (
  account text not null,
  id text not null,
  state text not null,
  due_at bigint,
  attempts integer not null,
  lost_attempts integer not null,
  ended_attempts integer,
  started_at bigint,
  leased_by text,
  counted_to_account integer,
  counted_to_endpoint integer,
  host text not null,
  endpoint text not null,
  size integer not null,
  reports_outcome integer not null,
  queue text,
  queue_slot text,
  flow_control_key text,
  waitlist text,
  run text,
  tags text,
  time_keys text not null,
  primary key (account, id)
) /*sqlite: without rowid */
  /*postgres: with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000, vacuum_truncate = false) */;
-- Leases that end and messages that wait for a lease have separate indexes, so that a backlog of one kind
-- does not hide the other kind.
create index messages_due on messages (due_at, id)
  where leased_by is null and due_at is not null and id <> '';
create index messages_leased on messages (due_at, id) where leased_by is not null;
-- Finds the accounts that have due messages, so that accounts take turns; see docs/decisions/0056. The other
-- indexes whose names end in `_turn` have the same purpose.
create index messages_turn on messages (account, due_at, id)
  where leased_by is null and due_at is not null and account <> '';
create index messages_waitlist on messages (account, waitlist, id) where waitlist is not null;
create index messages_queue on messages (account, queue, id) where queue is not null;
create index messages_queue_slot on messages (account, queue_slot, id) where queue_slot is not null;
-- Messages in flight are left out. Most messages are sent at once, so they never enter this index.
create index messages_host on messages (account, host, id)
  where leased_by is null /*postgres: and id <> '' */;
create index messages_run on messages (account, run, id) where run is not null;
-- Lists find messages with attempts among those that wait for their first one.
create index messages_attempted on messages (account, id) where attempts > 0;

-- Hosts for which messages are held because this server has no capacity for another delivery to them.
create table host_waitlists (
  account text not null,
  host text not null,
  due_at bigint not null,
  primary key (account, host)
) /*sqlite: without rowid */
  /*postgres: with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    vacuum_truncate = false) */;
create index host_waitlists_due on host_waitlists (due_at);
create index host_waitlists_turn on host_waitlists (account, due_at, host) where host <> '';

-- Queues, flow-control keys and the limits of concurrent deliveries of accounts, with their counters. These
-- rows are updated more often than any others. Messages that a limiter holds are in the waitlist of its id.
-- `paused` is 1 or null.
create table limiters (
  account text not null,
  id text not null,
  due_at bigint,
  running integer not null,
  waiting integer not null,
  window_start bigint not null,
  window_used integer not null,
  updated_at bigint not null,
  paused integer,
  detail text not null,
  primary key (account, id)
) /*sqlite: without rowid */
  /*postgres: with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000, vacuum_truncate = false) */;
create index limiters_due on limiters (due_at, account, id) where due_at is not null;
create index limiters_turn on limiters (account, due_at, id) where due_at is not null;
create index limiters_paused on limiters (account, paused) where paused is not null;

-- A slot of a queue that a message occupies until it and its callbacks have finished. `holders` counts them.
-- The id is the id of the message.
create table queue_slots (
  account text not null,
  id text not null,
  queue text not null,
  holders integer not null,
  primary key (account, id)
) /*sqlite: without rowid */
  /*postgres: with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    vacuum_truncate = false) */;
create index queue_slots_queue on queue_slots (account, queue, id) /*postgres: where id <> '' */;

-- `message_id`: the message or the schedule that was created with this key. `detail`: when it was created,
-- and where it goes.
create table deduplications (
  account text not null,
  key text not null,
  message_id text not null,
  expires_at bigint not null,
  detail text not null,
  primary key (account, key)
) /*sqlite: without rowid */
  /*postgres: with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000) */;
create index deduplications_expiry on deduplications (account, expires_at) /*postgres: where key <> '' */;

create table dead_letters (
  account text not null,
  id text not null,
  message_id text not null,
  detail text not null,
  body bytea,
  checksum integer,
  body_checksum integer,
  primary key (account, id)
) /*sqlite: without rowid */;

-- ----- The log of messages, and the tags of lists ----------------------------------------------------------

-- The events of messages, in order of time. The columns from `started_at` to `host` are null unless an attempt
-- ended; its times are in milliseconds. An event with only a host is a delivery that a step settled. On
-- PostgreSQL there is one partition for each day. It is created before it is needed, and dropped as a whole;
-- see `logPartitions.ts`.
create table log (
  account text not null,
  id text not null,
  message_id text not null,
  time bigint not null,
  states text not null,
  status integer,
  started_at bigint,
  connect_time integer,
  first_byte_time integer,
  duration integer,
  node text,
  host text,
  detail text,
  body bytea,
  primary key (account, id)
) /*sqlite: without rowid */ /*postgres: partition by range (id) */;
create index log_message on log (account, message_id, id);

-- The id up to which the log of an account counts as removed. The rows themselves stay until their partition
-- is dropped. This table has rows only on PostgreSQL.
create table log_cuts (
  account text not null,
  up_to text not null,
  primary key (account)
);

-- Log entries past the retention of the log that are kept because their messages are unfinished or have a
-- dead letter; see docs/decisions/0049.
create table kept_log (
  account text not null,
  id text not null,
  message_id text not null,
  time bigint not null,
  states text not null,
  status integer,
  started_at bigint,
  connect_time integer,
  first_byte_time integer,
  duration integer,
  node text,
  host text,
  detail text,
  body bytea,
  primary key (account, id)
) /*sqlite: without rowid */
  /*postgres: with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000) */;
create index kept_log_message on kept_log (account, message_id, id) /*postgres: where id <> '' */;

-- The tags by which lists are filtered. An id consists of a list, a tag and the id of a row in that list. So
-- the rows with a tag are together and in their order. See `engine/core/search/tags.ts`.
create table tags (
  account text not null,
  id text not null,
  primary key (account, id)
) /*sqlite: without rowid */
  /*postgres: with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000) */;

-- Each row says that the log has an entry for a URL, a host, a path or a caller within a certain interval of
-- 5 seconds. An id begins with its day; see `engine/core/search/timeIndex.ts`.
create table time_index (
  account text not null,
  id text not null,
  primary key (account, id)
) /*sqlite: without rowid */
  /*postgres: with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000) */;

-- ----- URL groups, schedules and webhook sources -----------------------------------------------------------

create table url_groups (
  account text not null,
  name text not null,
  detail text not null,
  checksum integer,
  body_checksum integer,
  primary key (account, name)
) /*sqlite: without rowid */;

create table schedules (
  account text not null,
  id text not null,
  due_at bigint,
  detail text not null,
  body bytea,
  checksum integer,
  body_checksum integer,
  primary key (account, id)
) /*sqlite: without rowid */
  /*postgres: with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000) */;
create index schedules_due on schedules (due_at, account, id) where due_at is not null;
create index schedules_turn on schedules (account, due_at, id) where due_at is not null;
-- A paused schedule is never due.
create index schedules_paused on schedules (account, due_at, id) where due_at is null;

create table sources (
  account text not null,
  id text not null,
  secret_hash text not null unique,
  detail text not null,
  primary key (account, id)
) /*sqlite: without rowid */;

-- Webhook calls that were refused. Each source has a fixed number of rows, which are overwritten in turn.
create table rejections (
  account text not null,
  id text not null,
  time bigint not null,
  detail text not null,
  body bytea,
  primary key (account, id)
) /*sqlite: without rowid */;

-- ----- Workflow runs ---------------------------------------------------------------------------------------

-- A run: how it was started, and how it ended.
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

-- Runs that have not ended, by the id that the caller gave (`run_id`). `run` is the id in `runs`. The rows
-- are small, because each step updates a row. `waiting` is the number of waiting steps, so that they need not
-- be counted in `waiters`. `last_call` is the message of the last call to the endpoint, if the next step that
-- the endpoint posts settles it: a step from `last_call_from` to `last_call_to`. `progress` is what the run has
-- done since; see `engine/store/layout/runTables.ts`.
create table active_runs (
  account text not null,
  run_id text not null,
  run text not null,
  steps integer not null,
  size bigint not null,
  first_message text not null,
  waiting integer not null,
  last_call text,
  last_call_from bigint,
  last_call_to bigint,
  progress text,
  primary key (account, run_id)
) /*sqlite: without rowid */
  /*postgres: with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000, vacuum_truncate = false) */;

-- The steps of runs. An id consists of the id of the run and the key of the step, so that the rows of a
-- history are together.
create table steps (
  account text not null,
  id text not null,
  position integer not null,
  message_id text not null,
  call_type text not null,
  created_at bigint not null,
  detail text not null,
  body bytea,
  checksum integer,
  body_checksum integer,
  primary key (account, id)
) /*sqlite: without rowid */
  /*postgres: with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000) */;

-- Steps that wait for an event.
create table waiters (
  account text not null,
  id text not null,
  kind text not null,
  event text not null,
  due_at bigint,
  detail text not null,
  primary key (account, id)
) /*sqlite: without rowid */
  /*postgres: with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    vacuum_truncate = false) */;
create index waiters_event on waiters (account, event, id) /*postgres: where id <> '' */;
create index waiters_due on waiters (due_at, account, id) where due_at is not null;
create index waiters_turn on waiters (account, due_at, id) where due_at is not null;

-- Events that arrived before a step waited for them.
create table notifications (
  account text not null,
  id text not null,
  kind text not null,
  event text not null,
  created_at bigint not null,
  body bytea,
  primary key (account, id)
) /*sqlite: without rowid */;

-- ----- The database itself: `migrate-store` does not copy these tables -------------------------------------

-- One row for each node on PostgreSQL. Each batch of the node that changes data increases `counter` and sets
-- `used_at` to the time of the batch. `clock_offset` is the lead of that time over the clock of the database
-- when that clock showed `clock_offset_at`; see docs/decisions/0050. `session` counts how often the node has
-- taken the lock that shows other nodes that it is alive; see docs/decisions/0051. `version` is the version of
-- the program.
create table nodes (
  id text not null primary key,
  started_at bigint not null,
  version text not null default '',
  counter bigint not null default 0,
  used_at bigint not null default 0,
  clock_offset bigint not null default 0,
  clock_offset_at bigint not null default 0,
  session bigint not null default 0
) /*postgres: with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000, vacuum_truncate = false) */;

-- One row that is updated to find out whether the storage takes changes.
create table storage_probe (probed_at bigint not null);
insert into storage_probe (probed_at) values (0);
