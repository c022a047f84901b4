-- Tokens of an account with rights of their own.

create table tokens (
  account text not null,
  id text not null,
  token_hash text not null unique,
  detail text not null,
  primary key (account, id)
) /*sqlite: without rowid */;
