-- What accounts have used: numbers that every transaction adds to, in rows of its node. And the requests of a day, of
-- accounts for which they are limited.

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
  primary key (account, id)
) /*sqlite: without rowid */ /*postgres: with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000) */;

-- The dead letters that there are already.
insert into usage select account, '3h/0000000000000/carried', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, count(*) from dead_letters group by account;

create table day_counts (
  account text not null,
  day bigint not null,
  requests bigint not null,
  primary key (account)
) /*sqlite: without rowid */;
