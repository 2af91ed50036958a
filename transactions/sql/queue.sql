-- name: lock_and_ripen
with locked as (select pg_try_advisory_xact_lock(hashtext('surefoot.dispatch')) as mine),
due as (
    select s.run_id, s.n from surefoot.segments s
     where (select mine from locked) and s.state = 'delayed' and s.queued_at <= clock_timestamp()
     order by s.queued_at limit :limit for no key update skip locked),
ripened as (
    update surefoot.segments s set state = 'waiting' from due where s.run_id = due.run_id and s.n = due.n
    returning 1)
select l.mine, (select count(*) from ripened) as ripened, (select last_value from surefoot.handed) as handed,
       :fresh_s > 0 and d.looked_at > clock_timestamp() - make_interval(secs => case
           when d.backlog or d.handed <> (select last_value from surefoot.handed)
                or exists (select 1 from surefoot.segments s where s.state = 'waiting') then :fresh_s
           else greatest(:fresh_s, :idle_s) end) as fresh,
       d.backlog
  from locked l left join surefoot.dispatch d on d.tenant = 'default'

-- name: look
with recursive lanes as (
    (select s.tenant, s.agent, s.begins as first from surefoot.segments s where s.state = 'waiting'
      order by s.tenant, s.agent, s.begins limit 1)
    union all
    select x.* from lanes l cross join lateral (
        select s.tenant, s.agent, s.begins as first from surefoot.segments s
         where s.state = 'waiting' and (s.tenant, s.agent, s.begins) > (l.tenant, l.agent, l.first)
         order by s.tenant, s.agent, s.begins limit 1) x),
live as (  -- whoever takes work; those of before say neither when they are ready nor how many slots they have
    select w.version, w.agents, sum(w.slots)::integer as slots, bool_or(w.slots is null) as unbounded from surefoot.workers w
     where w.state = 'live' and w.lease_until > clock_timestamp() and w.draining_at is null
       and (w.ready_at is not null or w.slots is null) group by w.version, w.agents),
heads as (
    select l.tenant, l.agent, l.first, h.*, t.served_at
      from lanes l left join surefoot.queue_turns t on t.tenant = l.tenant
      cross join lateral (
        select s.run_id, s.n, s.priority, s.queued_at,
               (r.agent, r.agent_version is null, r.state_version, r.pinned_version, r.refused_by)::text as can_go_to
          from surefoot.segments s join surefoot.runs r on r.run_id = s.run_id and r.state = 'queued'
         where s.state = 'waiting' and s.tenant = l.tenant and s.agent = l.agent and s.begins = l.first
         order by s.priority desc, s.queued_at, s.run_id limit :per_lane) h),
carriers as materialized (  -- whose they are, asked once for all that can go to the same ones; nobody asks where there is but one
    select h.can_go_to, surefoot.version_for(min(h.run_id)) as version
      from heads h where (select count(distinct version) from live) > 1 group by h.can_go_to),
routed as (
    select h.tenant, h.agent, h.first, h.run_id, h.n, h.priority, h.queued_at, h.served_at, c.version
      from heads h left join carriers c using (can_go_to)),
newest as (  -- who takes the runs that begin
    select distinct on (a.agent) a.agent, v.version
      from surefoot.version_agents a join surefoot.versions v on v.version = a.version
     where v.version in (select version from live) order by a.agent, v.current_since desc nulls last, v.n desc),
running as (
    select s.tenant, s.agent, d.application_version as version, count(*) as running
      from surefoot.segments s left join dbos.workflow_status d on d.workflow_uuid = s.run_id || ':' || s.n
     where s.state = 'open' group by s.tenant, s.agent, d.application_version)
select (select coalesce(jsonb_agg(h order by h.priority desc, h.first, h.queued_at, h.run_id), '[]') from routed h) as heads,
       (select coalesce(jsonb_agg(w), '[]') from live w) as live,
       (select coalesce(jsonb_agg(r), '[]') from running r) as running,
       (select coalesce(jsonb_object_agg(n.agent, n.version), '{}') from newest n) as newest,
       (select coalesce(jsonb_agg(a.name), '[]') from surefoot.agents a where a.tenant = 'default') as agents,
       d.room, d.rooms, d.reached, d.backlog, d.handed,
       d.looked_at < clock_timestamp() - make_interval(secs => :idle_s) as stale
  from surefoot.dispatch d where d.tenant = 'default'

-- name: take_back_if_nobody_serves
-- What the engine has of agents that no live worker serves, and nobody has begun, waits again. What has begun is the router's.
with nobodys as (
    select s.run_id, s.n
      from surefoot.segments s
      join surefoot.runs r on r.run_id = s.run_id and r.segment = s.n and r.state = 'queued'
     where s.state = 'open' and s.executions = 0 and s.agent = any(:agents)
       and not exists (select 1 from surefoot.workers w
                        where w.state = 'live' and w.lease_until > clock_timestamp() and w.draining_at is null
                          and (w.agents is null or s.agent = any(w.agents)))
     order by s.run_id for no key update of r, s skip locked),
taken as (
    delete from dbos.workflow_status d using nobodys x
     where d.workflow_uuid = x.run_id || ':' || x.n and d.status = 'ENQUEUED' returning x.run_id, x.n),
-- When it is handed over again its input is a new row: the sweep of orphans may be about to remove this one.
without_input as (
    delete from dbos.workflow_input i using taken where i.workflow_uuid = taken.run_id || ':' || taken.n)
update surefoot.segments s set state = 'waiting', admitted_at = null, rated = false
  from taken where s.run_id = taken.run_id and s.n = taken.n and s.state = 'open'
returning s.run_id

-- name: limits_in_force
select l.tenant, l.everyone, l.agent, l.running_max, l.starts_max,
       case when l.starts_max is not null then (select count(*) from (
           (select 1 from surefoot.segments s
             where not l.everyone and s.rated and s.begins and s.tenant = l.tenant and l.agent in ('', s.agent)
               and s.admitted_at > clock_timestamp() - make_interval(secs => l.period_s) limit l.starts_max)
           union all
           (select 1 from surefoot.segments s
             where l.everyone and l.agent <> '' and s.rated and s.begins and s.agent = l.agent
               and s.admitted_at > clock_timestamp() - make_interval(secs => l.period_s) limit l.starts_max)
           union all
           (select 1 from surefoot.segments s
             where l.everyone and l.agent = '' and s.rated and s.begins
               and s.admitted_at > clock_timestamp() - make_interval(secs => l.period_s) limit l.starts_max)) x) end as started
  from surefoot.limits l
 where l.running_max is not null or l.starts_max is not null

-- name: admit_if_waiting
with chosen as (
    select s.run_id, s.n, c.rated
      from unnest(cast(:run_ids as text[]), cast(:ns as integer[]), cast(:rated as boolean[])) with ordinality as c (run_id, n, rated, i)
      join surefoot.segments s on s.run_id = c.run_id and s.n = c.n and s.state = 'waiting'
     order by c.i for no key update of s skip locked)
update surefoot.segments s set state = 'open', admitted_at = clock_timestamp(), rated = chosen.rated
  from chosen where s.run_id = chosen.run_id and s.n = chosen.n and s.state = 'waiting'
returning s.run_id, s.n

-- name: hand_to_engine
select surefoot.hand_to_engine(c.run_id, c.n)
  from unnest(cast(:run_ids as text[]), cast(:ns as integer[])) with ordinality as c (run_id, n, i) order by c.i

-- name: served
insert into surefoot.queue_turns (tenant, served_at)
select t.tenant, clock_timestamp() from unnest(cast(:tenants as text[])) with ordinality as t (tenant, i) order by t.i
on conflict (tenant) do update set served_at = excluded.served_at

-- name: ask_one_to_hand_on
-- Unless so many have been asked already; whoever does not come to a boundary meanwhile is not counted any more.
with asked as (
    select count(*) as n from surefoot.segments s join surefoot.runs r on r.run_id = s.run_id and r.segment = s.n
     where s.state = 'open' and r.asked is not null and r.updated_at > clock_timestamp() - interval '60 seconds'),
one as (
    select r.run_id from surefoot.segments s
      join surefoot.runs r on r.run_id = s.run_id and r.segment = s.n and r.state = 'running' and r.asked is null
      join dbos.workflow_status d on d.workflow_uuid = s.run_id || ':' || s.n
     where s.state = 'open' and s.tenant = :tenant and d.status = 'PENDING' and d.application_version = any(:versions)
       and (select n from asked) < :asked_max
     order by s.admitted_at, s.run_id limit 1 for no key update of r skip locked)
update surefoot.runs r set asked = 'hand on', updated_at = clock_timestamp() from one where r.run_id = one.run_id

-- name: tell
update surefoot.dispatch
   set room = :room, rooms = cast(:rooms as jsonb), reached = :reached, backlog = :backlog, handed = :handed, looked_at = clock_timestamp()
 where tenant = 'default'

-- name: status
select q.tenant, q.agent, q.running, q.waiting, q.delayed, q.oldest_at, q.next_due_at, q.why
  from surefoot.queue_status q where tenant = :tenant order by q.agent
