-- Readable by 11: older programs do not use this table.

-- One row that a probe changes, to find out whether the storage takes changes.
create table storage_probe (probed_at bigint not null);
insert into storage_probe (probed_at) values (0);
