-- Readable by 11: only how rows are found changes, on PostgreSQL.

-- Rows that are asked for by their keys are found through the index of the key, and no other one can be taken for it: a table
-- that was empty when it was last looked at lets all indexes look alike (docs/decisions/0041). The condition is always true.
/*postgres:
drop index messages_host;
create index messages_host on messages (account, host, id) where id <> '';
drop index slots_queue;
create index slots_queue on slots (account, queue, id) where id <> '';
drop index waiters_event;
create index waiters_event on waiters (account, event, id) where id <> '';
drop index deduplications_end;
create index deduplications_end on deduplications (account, expires_at) where key <> '';
*/
