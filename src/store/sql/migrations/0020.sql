-- Readable by 11: indexes alone.

-- Leases that run out and messages that wait for a claim are looked for apart, so that a backlog of these does not hide those. And of each
-- table the accounts are found that have something due. See docs/decisions/0056.
drop index messages_due;
create index messages_due on messages (due_at, id) where leased_by is null and due_at is not null and id <> '';
create index messages_leased on messages (due_at, id) where leased_by is not null;
create index messages_turn on messages (account, due_at, id) where leased_by is null and due_at is not null and account <> '';
create index lines_turn on lines (account, due_at, host) where host <> '';
create index flows_turn on flows (account, due_at, id) where due_at is not null;
create index schedules_turn on schedules (account, due_at, id) where due_at is not null;
create index waiters_turn on waiters (account, due_at, id) where due_at is not null;
