-- Why what waits of a tenant and agent is not admitted. A limit of all tenants is as the last look of a dispatcher has it,
-- for nobody sees how much of other tenants runs.
create function surefoot.queued_why(tenant text, agent text, first boolean) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select coalesce(
        (select 'limit of ' || case when l.everyone then 'all tenants' else 'tenant ' || l.tenant end
                || case l.agent when '' then '' else ' for agent ' || l.agent end || ': '
                || case when c.running >= l.running_max or (l.everyone and l.starts_max is null) then l.running_max || ' running'
                        when l.everyone and l.running_max is not null
                             then l.running_max || ' running, or ' || l.starts_max || ' starts in ' || l.period_s || ' s'
                        else l.starts_max || ' starts in ' || l.period_s || ' s' end
           from surefoot.limits l
           cross join lateral (
                select (select count(*) from surefoot.segments s
                         where not l.everyone and s.state = 'open' and s.tenant = l.tenant and l.agent in ('', s.agent)) as running,
                       (select count(*) from surefoot.segments s
                         where not l.everyone and s.rated and s.begins and s.tenant = l.tenant and l.agent in ('', s.agent)
                           and s.admitted_at > clock_timestamp() - make_interval(secs => l.period_s)) as starts) c
          where l.tenant in ('default', queued_why.tenant) and (l.everyone or l.tenant = queued_why.tenant)
            and l.agent in ('', queued_why.agent)
            and (c.running >= l.running_max or (queued_why.first and c.starts >= l.starts_max)
                 or (l.everyone and exists (select 1 from surefoot.dispatch d
                                             where d.tenant = 'default' and l.agent = any(d.reached))))
          order by l.everyone, l.agent desc limit 1),
        (select case when not exists (select 1 from surefoot.workers w
                                       where w.state = 'live' and w.lease_until > clock_timestamp() and w.draining_at is null
                                         and (w.agents is null or queued_why.agent = any(w.agents)))
                          then 'no live worker serves agent ' || queued_why.agent
                     when d.room = 0 then 'the live workers have no room: runs of others are before it' end
           from surefoot.dispatch d where d.tenant = 'default'),
        'its turn comes at the next look of a worker')
$$;
grant execute on function surefoot.queued_why to surefoot_app, surefoot_worker;

-- What is new: `priority`; `due_at` of a run that is delayed; `queued_why` of one that is queued; what to do where one is held
-- for a version.
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
            when r.state = 'held' and r.held_for = 'version'
                 then 'start a worker that can carry it on: it goes on by itself; or `surefoot runs migrate --to VERSION`'
            when r.state = 'held' then 'put the cause right, then `surefoot runs release`' end as what_to_do,
       case when r.ended_at is not null or r.state = 'cancelling' then initcap(r.state)
            when r.state = 'queued' and r.turns = 0 then 'Queued'
            when r.state = 'waiting' and exists (
                select 1 from surefoot.waits w where w.run_id = r.run_id and w.segment = r.segment
                   and w.state = 'open' and w.kind = 'approval') then 'Awaiting approval'
            else r.phase end as phase,
       r.priority,
       case when r.state = 'queued' then
           (select s.queued_at from surefoot.segments s
             where s.run_id = r.run_id and s.n = r.segment and s.state = 'delayed') end as due_at,
       case when r.state = 'queued' then
           (select case s.state when 'delayed' then 'it is to begin at ' || to_char(s.queued_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"')
                                when 'waiting' then surefoot.queued_why(s.tenant, s.agent, s.begins)
                                else 'it is its turn: a worker takes it up' end
              from surefoot.segments s where s.run_id = r.run_id and s.n = r.segment) end as queued_why
from surefoot.runs r;

-- What is new: a run that is queued is stuck only from when it may begin on, and why it waits.
create or replace view surefoot.stuck_runs with (security_invoker = true) as
select l.run_id, l.tenant, l.agent, l.state, l.since, l.limit_s,
       extract(epoch from clock_timestamp() - l.since)::double precision as seconds,
       case l.state
            when 'queued' then case when not l.served then 'no live worker can be seen'
                                    when l.place = 'waiting' then surefoot.queued_why(l.tenant, l.agent, l.begins)
                                    else 'no worker has taken it up' end
            when 'held' then l.reason
            when 'waiting' then coalesce(w.why, 'nothing that it waits for is open')
            else concat_ws(', ', case l.state when 'cancelling' then 'cancelled by ' || l.reason end,
                           coalesce('worker ' || e.worker_id || ' has it since ' || to_char(e.at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"')
                                    || case when e.lives then '' else ' and is not live any more' end, 'no worker has it')) end as why,
       case when l.state = 'queued' and l.served and l.place = 'waiting'
                 then 'nothing, if it may wait for its turn; else raise the limit with `surefoot limits set`, or start more workers; or cancel it'
            when l.state = 'queued' and l.served then 'see whether the live workers serve its agent and have room: `surefoot doctor`; or cancel it'
            when l.state = 'queued' then 'start a worker that serves its agent'
            when l.state = 'held' and l.held_for = 'version'
                 then 'start a worker that can carry it on: it goes on by itself; or `surefoot runs migrate --to VERSION`; or cancel it'
            when l.state = 'held' then 'put the cause right, then `surefoot runs release`; or cancel it'
            when l.state = 'waiting' and w.kinds @> array['approval'] then 'decide: see `surefoot approvals list`; or cancel it'
            when l.state = 'waiting' then 'see `surefoot actions list` and `surefoot runs show`; or cancel it'
            when e.lives is not true then 'nothing, while a live worker serves its agent: that one takes it up; else start one'
            when l.state = 'cancelling' then 'its worker is in a call that does not end: see its log; if it stays so, end that worker'
            else 'see the log of its worker; cancel the run if it is of no use any more' end as what_to_do
from (
    select r.run_id, r.tenant, r.agent, r.state, r.reason, r.held_for, r.segment, g.state as place, g.begins,
           greatest(s.entered_at, g.queued_at) as since,
           (a.limits ->> (r.state || '_s_max'))::double precision as limit_s,
           exists (select 1 from surefoot.workers w where w.state = 'live') as served
      from surefoot.run_states s
      join surefoot.runs r using (run_id)
      join surefoot.agents a on a.tenant = 'default' and a.name = r.agent
      left join surefoot.segments g on r.state = 'queued' and g.run_id = r.run_id and g.n = r.segment
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

-- What is new: from when on it takes work, from when on no more, and how much of whose.
create or replace view surefoot.worker_status with (security_invoker = true) as
select w.worker_id, w.tenant, w.version, w.host, w.pid, w.state, w.lease_until, w.lease_until - clock_timestamp() as lease_left,
       w.started_at, w.ended_at, w.reason, w.ready_at, w.draining_at, w.slots, w.agents
from surefoot.workers w;

-- How much of each tenant and agent runs, waits for its turn and is delayed; why what waits is not admitted.
create view surefoot.queue_status with (security_invoker = true) as
select q.tenant, q.agent, q.running, q.waiting, q.delayed, q.oldest_at, q.next_due_at,
       case when q.waiting > 0 then surefoot.queued_why(q.tenant, q.agent, q.first) end as why
  from (select s.tenant, coalesce(s.agent, r.agent) as agent,
               count(*) filter (where s.state = 'open') as running,
               count(*) filter (where s.state = 'waiting') as waiting,
               count(*) filter (where s.state = 'delayed') as delayed,
               min(s.queued_at) filter (where s.state = 'waiting') as oldest_at,
               min(s.queued_at) filter (where s.state = 'delayed') as next_due_at,
               bool_or(s.begins) filter (where s.state = 'waiting') as first
          from surefoot.segments s join surefoot.runs r using (run_id)
         where s.state <> 'settled' group by s.tenant, coalesce(s.agent, r.agent)) q;
grant select on surefoot.queue_status to surefoot_app, surefoot_worker;
