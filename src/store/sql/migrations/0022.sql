/*postgres:-- Readable by 16: on PostgreSQL the checksums stay null, which is not checked: it has its own checksums for each page.*/
-- CRC-32 of a row besides its body, and of its body: see docs/decisions/0060. Null: not checked, as an older program wrote it. On SQLite,
-- older programs would change rows and leave the checksums as they are, and so are not let in.
alter table envelopes add column sum integer;
alter table envelopes add column body_sum integer;
alter table dead_letters add column sum integer;
alter table dead_letters add column body_sum integer;
alter table url_groups add column sum integer;
alter table url_groups add column body_sum integer;
alter table schedules add column sum integer;
alter table schedules add column body_sum integer;
alter table steps add column sum integer;
alter table steps add column body_sum integer;
