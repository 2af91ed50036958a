-- All but the first two have next to nothing where there is no limit and nothing is delayed.
create unique index concurrently if not exists segments_one_unsettled on surefoot.segments (run_id) where state <> 'settled';
-- Only now: until there, and from there on, a run has one open segment at most.
drop index concurrently if exists surefoot.segments_one_open;
create index concurrently if not exists segments_open on surefoot.segments (tenant, agent) where state = 'open';
create index concurrently if not exists segments_waiting on surefoot.segments (tenant, agent, begins, priority desc, queued_at, run_id) where state = 'waiting';
create index concurrently if not exists segments_delayed on surefoot.segments (tenant, agent, queued_at) where state = 'delayed';
create index concurrently if not exists segments_due on surefoot.segments (queued_at) where state = 'delayed';
create index concurrently if not exists segments_rated on surefoot.segments (admitted_at) where rated;
create index concurrently if not exists segments_rated_of_tenant on surefoot.segments (tenant, admitted_at) where rated;
create index concurrently if not exists segments_rated_of_agent on surefoot.segments (agent, admitted_at) where rated;
