-- name: try_router_lock
select set_config('statement_timeout', :hold_ms, true), set_config('lock_timeout', :hold_ms, true),
       set_config('idle_in_transaction_session_timeout', :hold_ms, true),
       pg_try_advisory_xact_lock(hashtext('surefoot.router')) as mine

-- name: misrouted
-- anybodys: there is only something to end, of no run or of one that is being cancelled, and no state to read for that.
with live as materialized (
    select w.version, max(v.current_since) as current_since
      from surefoot.workers w left join surefoot.versions v on v.version = w.version
     where w.state = 'live' and w.lease_until > clock_timestamp() and w.ready_at is not null and w.draining_at is null
     group by w.version),
nobodys as (
    select d.workflow_uuid as workflow_id, d.application_version as was, d.status, r.run_id, r.agent, s.n as segment, r.refused_by,
           case when r.agent_version is not null then r.state_version end as state_version,
           coalesce(s.executions, 1) > 0 as begun, r.pinned_version, coalesce(r.state, 'none') in ('none', 'cancelling') as anybodys,
           exists (select 1 from live l where l.version = d.application_version) as was_lives
      from dbos.workflow_status d
      left join (surefoot.segments s join surefoot.runs r on r.run_id = s.run_id and r.segment = s.n)
             on s.state = 'open' and d.workflow_uuid = s.run_id || ':' || s.n
     where d.name = 'surefoot.segment' and d.status in ('ENQUEUED', 'PENDING')  -- which have an index of their own
       and (d.status = 'ENQUEUED'
            or not exists (select 1 from surefoot.workers w where w.worker_id = d.executor_id and w.state = 'live'))),
routed as (
    select b.*, case when b.anybodys then :version else surefoot.version_for(b.run_id) end as version
      from nobodys b
     where not b.was_lives
        or (b.pinned_version <> b.was and not b.anybodys)
        or (not b.begun and b.status <> 'PENDING'
            and exists (select 1 from live l join surefoot.version_agents a on a.version = l.version and a.agent = b.agent
                         where (b.state_version is null or b.state_version = any(a.reads)) and l.version <> all(b.refused_by)
                           and l.current_since > (select v.current_since from surefoot.versions v where v.version = b.was))))
select workflow_id, was, version, begun, run_id, segment
  from routed where version is not null and version is distinct from was
 order by workflow_id limit :limit

-- name: move_if_not_executed
update dbos.workflow_status d set application_version = m.version
  from unnest(cast(:ids as text[]), cast(:was as text[]), cast(:versions as text[])) as m (id, was, version)
 where d.workflow_uuid = m.id and d.application_version is not distinct from m.was
   and (d.status = 'ENQUEUED'
        or (d.status = 'PENDING'
            and not exists (select 1 from surefoot.workers w where w.worker_id = d.executor_id and w.state = 'live')))
returning d.workflow_uuid

-- name: unreadable
-- readers: versions that could carry the run on, if one of their workers lived. Those of an agent that nobody serves have
-- had the grace to come up since the oldest of the live workers did.
select r.run_id,
       exists (select 1 from surefoot.workers w join surefoot.version_agents a on a.version = w.version and a.agent = r.agent
                where w.state = 'live' and w.lease_until > clock_timestamp() and w.draining_at is null) as served,
       (select string_agg(v.version, ', ' order by v.current_since desc)
          from surefoot.version_agents a join surefoot.versions v on v.version = a.version
         where a.agent = r.agent and (r.agent_version is null or r.state_version = any(a.reads))
           and v.version = coalesce(r.pinned_version, v.version) and v.version <> all(r.refused_by)) as readers
  from surefoot.segments s
  join surefoot.runs r on r.run_id = s.run_id and r.segment = s.n
  join dbos.workflow_status d on d.workflow_uuid = s.run_id || ':' || s.n
 where s.state = 'open' and r.state in ('queued', 'running')
   and (cast(:run_id as text) is null or r.run_id = :run_id)
   and s.created_at < clock_timestamp() - make_interval(secs => :gone_s)
   and (d.status = 'ENQUEUED'
        or (d.status = 'PENDING'
            and not exists (select 1 from surefoot.workers w where w.worker_id = d.executor_id and w.state = 'live')))
   and not exists (select 1 from surefoot.workers w where w.version = d.application_version and w.state = 'live'
                      and w.lease_until > clock_timestamp() and w.draining_at is null)
   and exists (select 1 from surefoot.workers w left join surefoot.version_agents a on a.version = w.version and a.agent = r.agent
                where w.state = 'live' and w.lease_until > clock_timestamp() and w.draining_at is null
                  and (a.agent is not null or w.started_at < clock_timestamp() - make_interval(secs => :gone_s)))
   and surefoot.version_for(r.run_id) is null
   and not exists (
       select 1 from surefoot.workers w join surefoot.version_agents a on a.version = w.version and a.agent = r.agent
        where (r.agent_version is null or r.state_version = any(a.reads))
          and a.version = coalesce(r.pinned_version, a.version) and a.version <> all(r.refused_by)
          and coalesce(w.draining_at, w.ended_at, w.lease_until) > clock_timestamp() - make_interval(secs => :gone_s))
 order by r.run_id limit :limit

-- name: undelivered
-- readers: versions that could deliver what the run waits for, if one of their workers lived.
select r.run_id, c.tool,
       (select string_agg(v.version, ', ' order by v.current_since desc)
          from surefoot.version_agents a join surefoot.versions v on v.version = a.version
         where a.agent = r.agent and c.tool = any(a.tools) and r.state_version = any(a.reads)) as readers
  from (select a.run_id from surefoot.outbox_deliveries d join surefoot.actions a on a.action_id = d.entry_id
         where d.consumer = 'effect' and cast(:run_id as text) is null
           and ((d.state = 'pending' and d.due_at <= clock_timestamp())
                or (d.state = 'claimed' and d.lease_until < clock_timestamp()))
        union select :run_id) due
  join surefoot.runs r on r.run_id = due.run_id and r.state = 'waiting'
  cross join lateral (select surefoot.call_for_nobody(r.run_id, :gone_s) as tool) c
 where c.tool is not null
 order by r.run_id limit :limit

-- name: readable_again
select run_id from surefoot.runs
 where state = 'held' and held_for = 'version' and surefoot.version_for(run_id) is not null
   and surefoot.call_for_nobody(run_id, 0) is null
 order by run_id limit :limit

-- name: last_refusal
select e.data ->> 'why' as why from surefoot.events e
 where e.run_id = :run_id and e.kind = 'segment.refused' order by e.seq desc limit 1
