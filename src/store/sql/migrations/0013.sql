-- Readable by 11: older programs take in messages of which it is not known what to sight; what they tell in the log is found as below.

-- What is sighted with all that is told of a message. Null: it was taken in before.
alter table messages add column sights text;

-- That within five seconds something was told of a URL, a host, a path or a caller. An id begins with its day: see `core/sighting.ts`.
create table sightings (
  account text not null,
  id text not null,
  primary key (account, id)
) /*sqlite: without rowid */;

-- Of the days before there is none, and so all is looked at. So it must be of today, of which there will be some for a part; and of
-- tomorrow, if that begins while nodes with older programs may still be at work.
/*sqlite:
insert into sightings (account, id) select id, '0' || (unixepoch() / 86400) || ' any whole' from accounts;
*/
/*postgres:
alter table sightings set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
insert into sightings (account, id)
  select distinct id, '0' || floor(extract(epoch from clock_timestamp() + late) / 86400)::bigint || ' any whole'
  from accounts, (values (interval '0'), (interval '1 hour')) as moments (late);
*/
