-- One row is a segment that nobody is at, and that is in no queue where anybody would find it. Watchdogs look for the same
-- at every tick: while a live worker serves its agent, a row is gone again in about a second.
create view surefoot.stranded with (security_invoker = true) as
select x.run_id, x.tenant, x.segment, x.run_id || ':' || x.segment as workflow_id, x.engine, x.worker_id, x.version, x.since, x.why,
       case when exists (select 1 from surefoot.workers w where w.state = 'live' and w.lease_until > clock_timestamp())
            then 'nothing, if it is gone in a moment, or held; else see the log of the live workers for its run'
            else 'start a worker that serves its agent' end as what_to_do
from (
    select s.run_id, s.tenant, s.n as segment, d.status as engine, d.executor_id as worker_id, d.application_version as version,
           coalesce(w.ended_at, w.lease_until, to_timestamp(d.updated_at / 1000.0)) as since,
           'worker ' || coalesce(d.executor_id, 'nobody') || case
               when w.state is null then ' was never heard of'
               when w.state = 'live' then ' has not renewed its lease'
               else ' is ' || w.state || coalesce(': ' || w.reason, '') end as why
      from dbos.workflow_status d
      join surefoot.segments s on s.run_id = substring(d.workflow_uuid from '^(.*):[0-9]+$')
       and s.n = substring(d.workflow_uuid from ':([0-9]{1,9})$')::integer
      left join surefoot.workers w on w.worker_id = d.executor_id
     where d.status = 'PENDING' and d.name = 'surefoot.segment'
       and not coalesce(w.state = 'live' and w.lease_until > clock_timestamp(), false)
    union all
    select s.run_id, s.tenant, s.n, d.status, d.executor_id, d.application_version,
           coalesce(to_timestamp(d.completed_at / 1000.0), s.created_at),
           case when d.status is null then 'the engine has no row of it' else 'the engine says ' || d.status end
      from surefoot.segments s
      join surefoot.runs r on r.run_id = s.run_id and r.segment = s.n
      left join dbos.workflow_status d on d.workflow_uuid = s.run_id || ':' || s.n
     where s.state = 'open' and r.state in ('queued', 'running', 'cancelling')
       and (d.workflow_uuid is null or d.status not in ('PENDING', 'ENQUEUED', 'DELAYED'))
    union all
    select s.run_id, s.tenant, s.n, d.status, d.executor_id, d.application_version,
           to_timestamp(d.updated_at / 1000.0), 'no worker of version ' || d.application_version || ' takes work'
      from dbos.workflow_status d
      join surefoot.segments s on s.run_id = substring(d.workflow_uuid from '^(.*):[0-9]+$') and s.state = 'open'
       and s.n = substring(d.workflow_uuid from ':([0-9]{1,9})$')::integer
     where d.status in ('ENQUEUED', 'DELAYED') and d.name = 'surefoot.segment' and d.application_version is not null
       -- While no worker takes work at all, what is queued waits for the next one, whatever its version.
       and (select bool_and(w.version <> d.application_version) from surefoot.workers w
             where w.state = 'live' and w.lease_until > clock_timestamp() and w.draining_at is null)
    union all
    -- What waits for its turn, or is delayed, is found by a dispatcher of any worker, if its run is to go on with it.
    select s.run_id, s.tenant, s.n, null, null, null, s.queued_at,
           case when r.segment <> s.n then 'it is ' || s.state || ', and its run is at segment ' || r.segment
                when r.state <> 'queued' then 'it is ' || s.state || ', and its run is ' || r.state
                else 'it is delayed, and was due' end
      from surefoot.segments s
      join surefoot.runs r on r.run_id = s.run_id
     where s.state in ('waiting', 'delayed')
       and (r.segment <> s.n or r.state <> 'queued'
            or (s.state = 'delayed' and s.queued_at <= clock_timestamp()
                and exists (select 1 from surefoot.workers w where w.state = 'live' and w.lease_until > clock_timestamp()
                               and w.draining_at is null)))) x;

grant select on surefoot.stranded to surefoot_app, surefoot_worker;
