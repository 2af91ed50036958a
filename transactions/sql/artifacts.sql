-- name: lock_name
select pg_advisory_xact_lock(hashtextextended('surefoot.artifact:' || :tenant || ':' || :name, 0))

-- name: save
insert into surefoot.artifacts (tenant, name, version, run_id, action_id, media_type, size_bytes, sha256, content, store,
                                object, result_of)
select :tenant, :name, greatest(max(version), (select n.last_version from surefoot.artifact_numbers n
                                                where n.tenant = :tenant and n.name = :name), 0) + 1, :run_id, :action_id, :media_type, :size_bytes, :sha256,
       cast(:content as bytea), :store, :object, :result_of
  from surefoot.artifacts where tenant = :tenant and name = :name
returning name, version, sha256, size_bytes, media_type

-- name: get
select name, version, sha256, size_bytes, media_type, store, object, content, run_id from surefoot.artifacts
 where tenant = :tenant and name = :name and version = :version

-- name: result_of
-- The result that was kept first of an action or a call; with a hash, the one that has it.
select name, version, sha256, size_bytes, media_type, store, object, content from surefoot.artifacts
 where result_of = :result_of and (cast(:sha256 as text) is null or sha256 = :sha256)
 order by version limit 1

-- name: any_of_run
-- Its own, or the result of another run's action that it shares by a business key.
select exists (select 1 from surefoot.artifacts where run_id = :run_id)
    or exists (select 1 from surefoot.action_calls c join surefoot.artifacts f using (action_id) where c.run_id = :run_id) as there_is_one

-- name: page
select name, version, sha256, size_bytes, media_type, run_id, created_at from surefoot.artifacts
 where tenant = :tenant and (cast(:name as text) is null or name = :name)
 order by created_at desc, name, version desc limit :limit

-- name: stage
insert into surefoot.staged_objects (object, tenant, store)
values (surefoot.deployment() || '/' || gen_random_uuid(), :tenant, :store)
returning object

-- name: is_staged
select exists (select 1 from surefoot.staged_objects where object = :object and store = :store) as is_staged

-- name: take_staged
delete from surefoot.staged_objects where object = :object and store = :store returning object

-- name: take_old_staged_skip_locked
-- One that a writer takes at this moment is locked, and is the writer's.
delete from surefoot.staged_objects where object in (
    select object from surefoot.staged_objects
     where store = :store and created_at <= clock_timestamp() - make_interval(secs => :older_than_s)
     order by created_at limit :limit for update skip locked)
returning object

-- name: neither_staged_nor_referenced
-- One statement, one snapshot: a writer's commit takes the staged row and makes the reference at once.
select o.object from unnest(cast(:objects as text[])) o (object)
 where not exists (select 1 from surefoot.staged_objects s where s.object = o.object and s.store = :store)
   and not exists (select 1 from surefoot.artifacts a where a.object = o.object and a.store = :store)

-- name: deployment
select surefoot.deployment() as deployment

-- name: begin_sweep_if_due
insert into surefoot.artifact_sweeps as s (tenant, store) values (:tenant, :store)
on conflict (tenant, store) do update set swept_at = clock_timestamp()
 where s.swept_at <= clock_timestamp() - make_interval(secs => :every_s)
returning store
