-- Entries of the log that are past their time, of messages that are unfinished or have a dead letter: see docs/decisions/0049. They are found
-- by time like those of the log, and by message. An older program would leave them behind when it removes a dead letter.
create table kept_log (
  account text not null,
  id text not null,
  message_id text not null,
  time bigint not null,
  states text not null,
  status integer,
  detail text,
  body bytea,
  primary key (account, id)
) /*sqlite: without rowid */ /*postgres: with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000) */;
create index kept_log_message on kept_log (account, message_id, id) /*postgres: where id <> '' */;
