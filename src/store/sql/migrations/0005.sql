-- Whether a lease counts towards what its account may have under way. Those from before do not.
alter table messages add column
  counted integer;
