-- How many steps of a run wait, so that nobody has to look at all of them. Null: not counted yet.
alter table active_runs add column
  waiting integer;
