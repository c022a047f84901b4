-- Readable by 11: older programs do not use this table.

-- One row for each node. Every batch of a node that changes something raises `counter` and sets the time it used (`used_at`).
-- `ahead`: by how much that time was ahead of the clock of the database when the clock said `ahead_at`. See docs/decisions/0050.
create table nodes (
  id text not null primary key,
  started_at bigint not null,
  counter bigint not null default 0,
  used_at bigint not null default 0,
  ahead bigint not null default 0,
  ahead_at bigint not null default 0
) /*postgres: with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, vacuum_truncate = false) */;
