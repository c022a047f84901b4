-- Readable by 11: older programs write rows without it, and change no row that they did not replace.

-- When the message of a deduplication key was taken, and where it goes, as JSON with the id of that message. Null: an older program wrote it.
alter table deduplications add column made text;
