-- Readable by 10: older programs count the requests of a second for themselves.

-- The requests of a second that all nodes share, of accounts for which they are limited: one row for each, overwritten by the next second.
create table second_counts (
  account text not null,
  second bigint not null,
  requests bigint not null,
  primary key (account)
) /*sqlite: without rowid */ /*postgres: with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000) */;
