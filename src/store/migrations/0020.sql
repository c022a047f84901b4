-- Readable by 11: older programs do not count these bytes.

-- Bytes that came into storage, less those that went: see docs/decisions/0057.
alter table usage add column stored_bytes bigint not null default 0;
