-- Who did what to the settings of an account. An id sorts by time.
create table audit (
  account text not null,
  id text not null,
  time bigint not null,
  what text not null,
  detail text not null,
  primary key (account, id)
) /*sqlite: without rowid */;
