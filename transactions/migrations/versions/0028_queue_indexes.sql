-- Each reads its table; meanwhile rows can be read, and wait to be written. All but the first two have next to nothing
-- where there is no limit and nothing is delayed.
create unique index segments_one_unsettled on surefoot.segments (run_id) where state <> 'settled';
drop index surefoot.segments_one_open;
create index segments_open on surefoot.segments (tenant, agent) where state = 'open';
create index segments_waiting on surefoot.segments (tenant, agent, begins, priority desc, queued_at, run_id) where state = 'waiting';
create index segments_delayed on surefoot.segments (tenant, agent, queued_at) where state = 'delayed';
create index segments_due on surefoot.segments (queued_at) where state = 'delayed';
create index segments_rated on surefoot.segments (admitted_at) where rated;
create index segments_rated_of_tenant on surefoot.segments (tenant, admitted_at) where rated;
create index segments_rated_of_agent on surefoot.segments (agent, admitted_at) where rated;
