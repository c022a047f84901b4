-- Readable by 11: the leases of older programs run out by time alone.

-- How often a node has taken the lock by which the others see that it is there. See docs/decisions/0051.
alter table nodes add column session bigint not null default 0;
