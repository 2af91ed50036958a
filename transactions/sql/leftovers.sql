-- What belongs to no run: rows of the engine, of workers, of tokens, counters.

-- name: lock_done_of_engine_skip_locked
select workflow_uuid as id, completed_at from dbos.workflow_status
 where completed_at <= cast(extract(epoch from statement_timestamp()) * 1000 - 1000 * cast(:keep_s as double precision) as bigint)
   and name = 'surefoot.segment' and status in ('SUCCESS', 'ERROR', 'CANCELLED', 'MAX_RECOVERY_ATTEMPTS_EXCEEDED')
   and (completed_at, workflow_uuid) > (cast(:after_at as bigint), cast(:after_id as text))
 order by completed_at, workflow_uuid limit :limit for update skip locked

-- name: remove_of_engine_if_segment_settled
-- Our row of the segment stays as long as its run, and so its id is never used again.
with done as (
    select w.id from unnest(cast(:ids as text[])) as w (id) where not exists (
        select 1 from surefoot.segments s
         where s.run_id = substring(w.id from '^(.*):[0-9]{1,9}$') and s.n = cast(substring(w.id from ':([0-9]{1,9})$') as integer)
           and (s.state <> 'settled' or s.settled_at > statement_timestamp() - make_interval(secs => :keep_s)))),
d1 as (delete from dbos.workflow_input where workflow_uuid in (select id from done) returning 1),
d2 as (delete from dbos.workflow_output where workflow_uuid in (select id from done) returning 1),
d3 as (delete from dbos.operation_outputs where workflow_uuid in (select id from done) returning 1),
d4 as (delete from dbos.workflow_status where workflow_uuid in (select id from done) returning 1)
select count(*) as items, count(*) + (select count(*) from d1) + (select count(*) from d2) + (select count(*) from d3) as rows from d4

-- The engine writes these with the row of their workflow or after it: what has none is left behind. By pages, for nothing tells
-- which they are.

-- name: orphaned_inputs
with page as (select workflow_uuid from dbos.workflow_input where workflow_uuid > :after order by 1 limit :limit),
gone as (delete from dbos.workflow_input o where o.workflow_uuid in (select workflow_uuid from page) and not exists (
             select 1 from dbos.workflow_status s where s.workflow_uuid = o.workflow_uuid) returning 1)
select (select count(*) from gone) as rows, case when count(*) = :limit then max(workflow_uuid) end as last_id from page

-- name: orphaned_outputs
with page as (select workflow_uuid from dbos.workflow_output where workflow_uuid > :after order by 1 limit :limit),
gone as (delete from dbos.workflow_output o where o.workflow_uuid in (select workflow_uuid from page) and not exists (
             select 1 from dbos.workflow_status s where s.workflow_uuid = o.workflow_uuid) returning 1)
select (select count(*) from gone) as rows, case when count(*) = :limit then max(workflow_uuid) end as last_id from page

-- name: orphaned_steps
with page as (select distinct workflow_uuid from dbos.operation_outputs where workflow_uuid > :after order by 1 limit :limit),
gone as (delete from dbos.operation_outputs o where o.workflow_uuid in (select workflow_uuid from page) and not exists (
             select 1 from dbos.workflow_status s where s.workflow_uuid = o.workflow_uuid) returning 1)
select (select count(*) from gone) as rows, case when count(*) = :limit then max(workflow_uuid) end as last_id from page

-- name: orphaned_datasource_outputs
select removed as rows, last_id from surefoot.remove_datasource_orphans(:after, :limit)

-- name: remove_workers
-- A claim is free when the row of its worker says that this is gone: that row outlives the claim.
with gone as (
    delete from surefoot.workers where worker_id in (
        select w.worker_id from surefoot.workers w
         where w.state <> 'live' and w.ended_at <= statement_timestamp() - make_interval(secs => :keep_s)
           and not exists (select 1 from surefoot.outbox_deliveries d where d.state = 'claimed' and d.worker_id = w.worker_id)
           and not exists (select 1 from dbos.workflow_status s
                            where s.status in ('PENDING', 'ENQUEUED', 'DELAYED') and s.executor_id = w.worker_id)
         order by w.ended_at limit :limit)
    returning 1)
select count(*) as items, count(*) as rows from gone

-- name: remove_tokens
with gone as (
    delete from surefoot.api_tokens where token_id in (
        select t.token_id from surefoot.api_tokens t
         where least(t.revoked_at, t.expires_at) <= statement_timestamp() - make_interval(secs => :keep_s) limit :limit)
    returning 1)
select count(*) as items, count(*) as rows from gone

-- name: idle_keys
-- Counters of keys of which there is no entry. By pages.
select tenant, topic, key, exists (
           select 1 from surefoot.outbox_entries e where e.tenant = k.tenant and e.topic = k.topic and e.key = k.key) as is_used
  from surefoot.outbox_keys k
 where (tenant, topic, key) > (cast(:tenant as text), cast(:topic as text), cast(:key as text)) order by tenant, topic, key limit :limit

-- name: lock_keys_skip_locked
select k.tenant, k.topic, k.key from surefoot.outbox_keys k
  join unnest(cast(:tenants as text[]), cast(:topics as text[]), cast(:keys as text[])) as o (tenant, topic, key) using (tenant, topic, key)
 order by 1, 2, 3 for update of k skip locked

-- name: remove_locked_keys_if_idle
-- Asked again under their locks: who numbers an entry has locked its key since, or waits for this commit and begins with 1.
with gone as (
    delete from surefoot.outbox_keys k
     using unnest(cast(:tenants as text[]), cast(:topics as text[]), cast(:keys as text[])) as o (tenant, topic, key)
     where k.tenant = o.tenant and k.topic = o.topic and k.key = o.key and not exists (
        select 1 from surefoot.outbox_entries e where e.tenant = k.tenant and e.topic = k.topic and e.key = k.key)
    returning 1)
select count(*) as items, count(*) as rows from gone

-- name: remove_numbers
-- As long as keys are kept, the number of a version that was removed is not given again.
with gone as (
    delete from surefoot.artifact_numbers n where (n.tenant, n.name) in (
        select m.tenant, m.name from surefoot.artifact_numbers m
         where not surefoot.is_kept(m.removed_at, surefoot.keep_s(m.tenant, '', 'keys', :keys_s))
            or exists (select 1 from surefoot.artifacts f where f.tenant = m.tenant and f.name = m.name and f.version >= m.last_version)
         limit :limit)
    returning 1)
select count(*) as items, count(*) as rows from gone

-- name: remove_told
with gone as (
    delete from surefoot.removals where (tenant, day, kind, by) in (
        select tenant, day, kind, by from surefoot.removals
         where day < (statement_timestamp() at time zone 'UTC')::date - cast(:days as integer) limit :limit)
    returning 1)
select count(*) as items, count(*) as rows from gone
