-- Whether a lease counts towards what its account may have under way to one host. Those from before do not.
alter table messages add column
  counted_to_host integer;
