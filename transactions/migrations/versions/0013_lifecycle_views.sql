-- Runs that are over: when they ended is when they entered their last state.
insert into surefoot.run_states (run_id, n, tenant, state, entered_at, left_at)
select run_id, 1, tenant, state, ended_at, ended_at from surefoot.runs where ended_at is not null
on conflict do nothing;

-- What is new: `phase`, what people see. That of the last turn whose calls name one, but for what the state alone says.
create or replace view surefoot.run_status with (security_invoker = true) as
select r.run_id, r.tenant, r.agent, r.agent_version, r.state,
       (select array_agg(distinct w.kind order by w.kind) from surefoot.waits w
         where w.run_id = r.run_id and w.segment = r.segment and w.state = 'open') as waiting_for,
       r.reason, r.turns, r.segment, r.generation, r.stalls,
       (select count(*) from surefoot.actions a where a.run_id = r.run_id and a.state in ('IN_FLIGHT', 'UNKNOWN')) as unsettled_actions,
       (select count(*) from surefoot.outbox_deliveries d join surefoot.outbox_entries e using (entry_id)
         where e.run_id = r.run_id and d.state in ('pending', 'claimed')) as open_deliveries,
       r.output, r.created_at, r.updated_at, r.ended_at,
       coalesce(r.ended_at, clock_timestamp()) - r.created_at as age,
       case when exists (select 1 from surefoot.approvals p where p.run_id = r.run_id and p.state = 'pending' and r.ended_at is null)
                 then 'decide: see `surefoot approvals list`'
            when exists (select 1 from surefoot.actions a join surefoot.outbox_deliveries d on d.entry_id = a.action_id and d.consumer = 'effect'
                          where a.run_id = r.run_id and ((a.state = 'UNKNOWN' and d.state = 'parked')
                                or (a.state = 'PREPARED' and a.failure = 'permission' and d.state = 'dead')))
                 then 'say what became of its effect: see `surefoot actions list`'
            when r.state = 'held' then 'put the cause right, then `surefoot runs release`' end as what_to_do,
       case when r.ended_at is not null or r.state = 'cancelling' then initcap(r.state)
            when r.state = 'queued' and r.turns = 0 then 'Queued'
            when r.state = 'waiting' and exists (
                select 1 from surefoot.waits w where w.run_id = r.run_id and w.segment = r.segment
                   and w.state = 'open' and w.kind = 'approval') then 'Awaiting approval'
            else r.phase end as phase
from surefoot.runs r;

-- Seconds, until now for the state that a run is in. A state that ends a run takes none.
create view surefoot.run_times with (security_invoker = true) as
select s.run_id, s.tenant, s.state, count(*) as entered, min(s.entered_at) as first_entered_at,
       extract(epoch from sum(coalesce(s.left_at, clock_timestamp()) - s.entered_at))::double precision as seconds
  from surefoot.run_states s group by s.run_id, s.tenant, s.state;

create view surefoot.stuck_runs with (security_invoker = true) as
select l.run_id, l.tenant, l.agent, l.state, l.since, l.limit_s,
       extract(epoch from clock_timestamp() - l.since)::double precision as seconds,
       case l.state
            when 'queued' then case when l.served then 'no worker has taken it up' else 'no live worker can be seen' end
            when 'held' then l.reason
            when 'waiting' then coalesce(w.why, 'nothing that it waits for is open')
            else concat_ws(', ', case l.state when 'cancelling' then 'cancelled by ' || l.reason end,
                           coalesce('worker ' || e.worker_id || ' has it since ' || to_char(e.at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"')
                                    || case when e.lives then '' else ' and is not live any more' end, 'no worker has it')) end as why,
       case when l.state = 'queued' and l.served then 'see whether the live workers serve its agent and have room: `surefoot doctor`; or cancel it'
            when l.state = 'queued' then 'start a worker that serves its agent'
            when l.state = 'held' then 'put the cause right, then `surefoot runs release`; or cancel it'
            when l.state = 'waiting' and w.kinds @> array['approval'] then 'decide: see `surefoot approvals list`; or cancel it'
            when l.state = 'waiting' then 'see `surefoot actions list` and `surefoot runs show`; or cancel it'
            when e.lives is not true then 'nothing, while a live worker serves its agent: that one takes it up; else start one'
            when l.state = 'cancelling' then 'its worker is in a call that does not end: see its log; if it stays so, end that worker'
            else 'see the log of its worker; cancel the run if it is of no use any more' end as what_to_do
from (
    select r.run_id, r.tenant, r.agent, r.state, r.reason, r.segment, s.entered_at as since,
           (a.limits ->> (r.state || '_s_max'))::double precision as limit_s,
           exists (select 1 from surefoot.workers w where w.state = 'live') as served
      from surefoot.run_states s
      join surefoot.runs r using (run_id)
      join surefoot.agents a on a.tenant = 'default' and a.name = r.agent
     where s.left_at is null) l
left join lateral (
    select string_agg(x.kind || coalesce(' of ' || x.action_id, '') || ' since '
                      || to_char(x.opened_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"'), ', ' order by x.position) as why,
           array_agg(x.kind) as kinds
      from surefoot.waits x where x.run_id = l.run_id and x.segment = l.segment and x.state = 'open') w on l.state = 'waiting'
left join lateral (
    select v.worker_id, v.at, exists (select 1 from surefoot.workers k where k.worker_id = v.worker_id and k.state = 'live') as lives
      from surefoot.events v where v.run_id = l.run_id and v.kind = 'segment.began'
     order by v.seq desc limit 1) e on l.state in ('running', 'cancelling')
where l.since < clock_timestamp() - make_interval(secs => l.limit_s);

grant select on surefoot.run_times, surefoot.stuck_runs to surefoot_app, surefoot_worker;
