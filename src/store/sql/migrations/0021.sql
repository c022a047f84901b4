-- Readable by 16: the inserts of older programs name their columns. What they store or remove meanwhile is not counted.

-- How many bytes each account stores: see docs/decisions/0059. What there is already is counted first, because nobody can add to `usage` from
-- the time it gets the column until the end of the transaction. An entry of the log that an account has forgotten is not counted.
create temporary table stored as
  select account, cast(sum(weight) as bigint) as bytes from (
    select account, 100 + coalesce(octet_length(detail), 0) + coalesce(octet_length(body), 0) as weight from envelopes
    union all select account, 100 + coalesce(octet_length(detail), 0) + coalesce(octet_length(body), 0) from log
      /*postgres: where id > coalesce((select up_to from log_forgotten where log_forgotten.account = log.account), '') */
    union all select account, 100 + coalesce(octet_length(detail), 0) + coalesce(octet_length(body), 0) from kept_log
    union all select account, 100 + coalesce(octet_length(detail), 0) + coalesce(octet_length(body), 0) from dead_letters
    union all select account, 100 + coalesce(octet_length(detail), 0) + coalesce(octet_length(body), 0) from runs
    union all select account, 100 + coalesce(octet_length(detail), 0) + coalesce(octet_length(body), 0) from steps
    union all select account, 100 + coalesce(octet_length(body), 0) from notifications
    union all select account, 100 + coalesce(octet_length(detail), 0) from waiters
    union all select account, 100 + coalesce(octet_length(detail), 0) + coalesce(octet_length(body), 0) from schedules
    union all select account, 100 + coalesce(octet_length(detail), 0) from url_groups
    union all select account, 100 + coalesce(octet_length(detail), 0) + coalesce(octet_length(body), 0) from rejections
    union all select account, 100 + coalesce(octet_length(detail), 0) from audit
  ) as weighed group by account;

alter table usage add column
  stored_bytes bigint not null default 0;

insert into usage (account, id, messages, workflow_messages, workflow_runs, delivered, failed, cancelled,
    workflow_delivered, workflow_failed, workflow_cancelled, bytes_in, bytes_out, dead_letters, stored_bytes)
  select account, '3h/0000000000000/carried', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, bytes from stored where true
  on conflict (account, id) do update set stored_bytes = excluded.stored_bytes;

drop table stored;
