-- Queues, flow control, URL groups, schedules, sources.

-- Where a message stands in a queue and in line. `line` is the name of the line of a held message.
alter table messages add column
  queue text;
alter table messages add column
  flow_key text;
alter table messages add column
  slot text;
alter table messages add column
  line text;
alter table messages add column
  marks text;
update messages set line = 'host:' || host where state = 'held';
drop index messages_held;
create index messages_line on messages (account, line, id) where line is not null;
create index messages_queue on messages (account, queue, id) where queue is not null;
create index messages_host on messages (account, host, id);
create index messages_slot on messages (account, slot, id) where slot is not null;

-- Queues and flow control keys, with their counters: small, and the hottest rows of all.
create table flows (
  account text not null,
  id text not null,
  due_at bigint,
  running integer not null,
  waiting integer not null,
  window_start bigint not null,
  window_used integer not null,
  updated_at bigint not null,
  detail text not null,
  primary key (account, id)
) /*sqlite: without rowid */ /*postgres: with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000) */;
create index flows_due on flows (due_at, account, id) where due_at is not null;

create table slots (
  account text not null,
  id text not null,
  queue text not null,
  holders integer not null,
  primary key (account, id)
) /*sqlite: without rowid */;
create index slots_queue on slots (account, queue, id);

create table url_groups (
  account text not null,
  name text not null,
  detail text not null,
  primary key (account, name)
) /*sqlite: without rowid */;

create table schedules (
  account text not null,
  id text not null,
  due_at bigint,
  detail text not null,
  body bytea,
  primary key (account, id)
) /*sqlite: without rowid */;
create index schedules_due on schedules (due_at, account, id) where due_at is not null;

-- What lists are searched by. An id is a list, a mark, and the id of a row of that list, so that the rows with a mark lie
-- together in their order: see `core/mark.ts`.
create table marks (
  account text not null,
  id text not null,
  primary key (account, id)
) /*sqlite: without rowid */;

create table sources (
  account text not null,
  id text not null,
  secret_hash text not null unique,
  detail text not null,
  primary key (account, id)
) /*sqlite: without rowid */;

-- Calls that sources refused. A source has a fixed number of places, which are used again.
create table rejections (
  account text not null,
  id text not null,
  time bigint not null,
  detail text not null,
  body bytea,
  primary key (account, id)
) /*sqlite: without rowid */;
