-- Versions that older programs can live with; and on PostgreSQL a log that is cut whole.

alter table schema_version add column
  readable_by integer;

-- Up to which row the log of an account is gone, although the rows are there until their part is dropped.
create table log_forgotten (
  account text not null,
  up_to text not null,
  primary key (account)
);

/*postgres:
-- One part for each day, which is dropped whole when all of it is past its time: see `logPartitions.ts`. What there is now is the first
-- part, together with what is added today. It is looked through once, so that it may be one. All wait for that: so a large one gets no end yet,
-- for which nothing needs to be looked at, and has it later: see `openLog.ts`.
alter table log rename to log_before;
alter table log_before rename constraint log_pkey to log_before_pkey;
alter index log_message rename to log_before_message;
create table log (like log_before including defaults, primary key (account, id)) partition by range (id);
create index log_message on log (account, message_id, id);
do $$
declare
  now_day bigint := floor(extract(epoch from clock_timestamp()) / 86400);
  last_day bigint;
begin
  if pg_relation_size('log_before') > 8388608 then
    alter table log attach partition log_before for values from (minvalue) to (maxvalue);
    return;
  end if;
  last_day := coalesce((select max(left(id, 13)) from log_before)::bigint / 86400000, 0);
  execute format('alter table log attach partition log_before for values from (minvalue) to (%L)',
    lpad(((greatest(now_day, last_day) + 1) * 86400000)::text, 13, '0') || '-');
end $$;

-- Tables of which rows go all the time are vacuumed long before a fifth of them is dead, and no vacuum locks them to give pages back.
alter table messages set (vacuum_truncate = false);
alter table flows set (vacuum_truncate = false);
alter table active_runs set (vacuum_truncate = false);
alter table lines set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, vacuum_truncate = false);
alter table slots set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, vacuum_truncate = false);
alter table waiters set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, vacuum_truncate = false);
alter table schedules set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
alter table deduplications set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
alter table marks set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
alter table envelopes set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
alter table steps set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
*/
