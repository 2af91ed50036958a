-- name: lock
select * from surefoot.segments where run_id = :run_id and n = :n for no key update

-- name: owned_by_executor
select exists (select 1 from surefoot.workers w
                where w.worker_id = :worker_id and w.state = 'live' and w.lease_until > clock_timestamp()) as lives
  from dbos.workflow_status
 where workflow_uuid = :workflow_id and status = 'PENDING' and executor_id = :worker_id for share

-- name: freeze
update surefoot.segments set frozen = coalesce(frozen, cast(:frozen as jsonb)), executions = executions + 1
 where run_id = :run_id and n = :n and state = 'open' returning frozen, executions

-- name: settle
update surefoot.segments s
   set state = 'settled', outcome = :outcome, settled_at = clock_timestamp(),
       turns = (select r.turns from surefoot.runs r where r.run_id = s.run_id)
 where run_id = :run_id and n = :n and state <> 'settled'

-- name: ended_last
select n, turns from surefoot.segments
 where run_id = :run_id and n < :n and outcome not in ('lost', 'held', 'diverged', 'refused', 'migrated') order by n desc limit 1

-- name: diverged_in_a_row
select count(*) as diverged from surefoot.segments
 where run_id = :run_id and n < :n and outcome = 'diverged'
   and n > coalesce((select max(g.n) from surefoot.segments g
                      where g.run_id = :run_id and g.n < :n and g.outcome not in ('lost', 'diverged', 'refused', 'migrated')), -1)

-- name: open_next
-- One that follows a segment which nobody has begun, for its run was held or the engine lost it, has the place of that.
select surefoot.open_segment(r.run_id, :n, r.tenant, r.agent, r.priority,
           (select g.queued_at from surefoot.segments g where g.run_id = r.run_id and g.n = :n - 1 and g.executions = 0))
  from surefoot.runs r where r.run_id = :run_id and r.tenant = :tenant

-- name: settle_left_behind
-- Code of before settles only what is open: what waits for its turn, or is delayed, while its run does not is nobody's.
with left_behind as (
    select s.run_id, s.n, r.state, r.turns, r.segment from surefoot.segments s join surefoot.runs r on r.run_id = s.run_id
     where s.state in ('waiting', 'delayed') and (r.state <> 'queued' or r.segment <> s.n)
     order by s.run_id limit :limit for no key update of r, s skip locked)
update surefoot.segments s
   set state = 'settled', outcome = case when l.segment = s.n then l.state else 'lost' end, settled_at = clock_timestamp(), turns = l.turns
  from left_behind l where s.run_id = l.run_id and s.n = l.n
returning s.run_id

-- name: lost
select r.run_id, r.tenant, r.segment, r.stalls, d.status
  from surefoot.segments s
  join surefoot.runs r on r.run_id = s.run_id and r.segment = s.n
  left join dbos.workflow_status d on d.workflow_uuid = s.run_id || ':' || s.n
 where s.state = 'open' and r.state in ('queued', 'running', 'cancelling') and s.created_at < clock_timestamp() - interval '1 second'
   and (cast(:run_id as text) is null or r.run_id = :run_id)
   and (d.workflow_uuid is null or d.status not in ('PENDING', 'ENQUEUED', 'DELAYED'))
 order by r.run_id limit :limit

-- name: orphaned_executors
select distinct d.executor_id from dbos.workflow_status d
 where d.status = 'PENDING' and d.name = 'surefoot.segment' and d.application_version = :version and d.executor_id is not null
   and not exists (select 1 from surefoot.workers w where w.worker_id = d.executor_id and w.state = 'live')

-- name: superseded_workflows
select d.workflow_uuid from dbos.workflow_status d
  join surefoot.segments s on d.workflow_uuid = s.run_id || ':' || s.n
 where d.status in ('PENDING', 'ENQUEUED', 'DELAYED') and d.name = 'surefoot.segment' and s.state = 'settled' and s.outcome = 'lost'
