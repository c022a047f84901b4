-- What an account may have under way is counted for each endpoint. Leases, and messages that wait, from before go on being counted by host:
-- they have no endpoint. Older programs would count the others by host as well, and so are not let in.
alter table messages rename column counted_to_host to counted_to_endpoint;
alter table messages add column
  endpoint text;
