-- name: lock_name
select pg_advisory_xact_lock(hashtextextended('surefoot.artifact:' || :tenant || ':' || :name, 0))

-- name: save
insert into surefoot.artifacts (tenant, name, version, run_id, action_id, media_type, size_bytes, sha256, content)
select :tenant, :name, coalesce(max(version), 0) + 1, :run_id, :action_id, :media_type, :size_bytes, :sha256, :content
  from surefoot.artifacts where tenant = :tenant and name = :name
returning name, version, sha256, size_bytes, media_type

-- name: get
select name, version, sha256, size_bytes, media_type, content, run_id from surefoot.artifacts
 where tenant = :tenant and name = :name and version = :version
