-- The first tables. One text for SQLite and PostgreSQL; what only one of them understands stands in a marked comment,
-- like the one behind each table that asks SQLite to keep the rows in the order of their key. `text` is compared by bytes on both.

create table accounts (
  id text primary key,
  token_hash text not null unique,
  detail text not null
) /*sqlite: without rowid */;

-- A message as it was accepted. Written once. Rows are too large to lie in the tree of their key: few of them fit on a page.
create table envelopes (
  account text not null,
  id text not null,
  detail text not null,
  body bytea,
  primary key (account, id)
);

-- Where an unfinished message stands. Small and hot: a row goes when its message is finished.
create table messages (
  account text not null,
  id text not null,
  state text not null,
  due_at bigint,
  attempts integer not null,
  lost integer not null,
  leased_by text,
  host text not null,
  size integer not null,
  tells integer not null,
  primary key (account, id)
) /*sqlite: without rowid */ /*postgres: with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000) */;
create index messages_due on messages (due_at, id) where due_at is not null;
create index messages_held on messages (account, host, id) where state = 'held';

create table lines (
  account text not null,
  host text not null,
  due_at bigint not null,
  primary key (account, host)
) /*sqlite: without rowid */;
create index lines_due on lines (due_at);

create table deduplications (
  account text not null,
  key text not null,
  message_id text not null,
  expires_at bigint not null,
  primary key (account, key)
) /*sqlite: without rowid */;
create index deduplications_end on deduplications (account, expires_at);

create table dead_letters (
  account text not null,
  id text not null,
  message_id text not null,
  detail text not null,
  body bytea,
  primary key (account, id)
) /*sqlite: without rowid */;

-- What happened to messages, in order of time. Appended, and cut at the old end.
create table log (
  account text not null,
  id text not null,
  message_id text not null,
  time bigint not null,
  states text not null,
  status integer,
  detail text,
  body bytea,
  primary key (account, id)
) /*sqlite: without rowid */;
create index log_message on log (account, message_id, id);
