-- name: set_policy
insert into surefoot.retention_policies (tenant, kind, agent, keep_s, changed_by) values (:tenant, :kind, :agent, :keep_s, :by)
on conflict (tenant, kind, agent) do update
   set keep_s = excluded.keep_s, changed_at = clock_timestamp(), changed_by = excluded.changed_by

-- name: policies
select kind, agent, keep_s, changed_at, changed_by from surefoot.retention_policies
 where tenant = :tenant and keep_s is not null order by kind, agent

-- name: begin_pass_if_due
insert into surefoot.retention_passes as p (kind) values (:kind)
on conflict (tenant, kind) do update set begun_at = clock_timestamp(), goes_on_at = clock_timestamp()
 where p.goes_on_at <= clock_timestamp() - make_interval(secs => :every_s)
returning kind

-- name: go_on
update surefoot.retention_passes set goes_on_at = clock_timestamp() + make_interval(secs => :rest_s) where kind = :kind

-- name: passes
select kind, begun_at from surefoot.retention_passes order by kind

-- name: try_lock_all
-- One batch at a time in all of the deployment; and it waits for nobody's row for longer than this.
select pg_try_advisory_xact_lock(hashtext('surefoot.retention')) as mine, set_config('lock_timeout', '2s', true)

-- name: groups
-- Whose rows have an age at which they go, and who has one that is older; agent '': what belongs to no run.
select g.tenant, g.agent, k.keep_s
  from (select t.tenant, a.name as agent from surefoot.tenants t, surefoot.agents a where a.tenant = 'default'
        union all select t.tenant, '' from surefoot.tenants t) g
 cross join lateral (select surefoot.keep_s(g.tenant, g.agent, :kind, :default_s) as keep_s) k
 cross join lateral (select case when k.keep_s < 'Infinity' then statement_timestamp() - make_interval(secs => k.keep_s) end as old) o
 where (cast(:tenant as text) is null or g.tenant = :tenant) and o.old is not null
   and case :kind
       when 'runs' then exists (
            select 1 from surefoot.runs r where r.tenant = g.tenant and r.agent = g.agent and r.ended_at <= o.old)
       when 'messages' then exists (
            select 1 from surefoot.runs r where r.tenant = g.tenant and r.agent = g.agent and r.ended_at <= o.old
               and r.messages_removed_at is null)
       when 'events' then exists (
            select 1 from surefoot.runs r where r.tenant = g.tenant and r.agent = g.agent and r.ended_at <= o.old
               and r.events_removed_at is null)
       when 'outbox' then exists (
            select 1 from surefoot.runs r where r.tenant = g.tenant and r.agent = g.agent and r.ended_at <= o.old
               and r.outbox_removed_at is null)
            or (g.agent = '' and exists (
            select 1 from surefoot.outbox_entries e where e.run_id is null and e.tenant = g.tenant and e.created_at <= o.old))
       when 'artifacts' then g.agent <> '' and exists (
            select 1 from surefoot.artifacts f where f.tenant = g.tenant and f.created_at <= o.old) end
 order by g.tenant, g.agent

-- name: tell
insert into surefoot.removals as r (tenant, day, kind, by, items, rows)
values (:tenant, (statement_timestamp() at time zone 'UTC')::date, :kind, :by, :items, :rows)
on conflict (tenant, day, kind, by) do update
   set items = r.items + excluded.items, rows = r.rows + excluded.rows, last_at = clock_timestamp()

-- name: told
select day, kind, by, items, rows, last_at from surefoot.removals
 where tenant = :tenant and day >= (statement_timestamp() at time zone 'UTC')::date - cast(:days as integer)
 order by day desc, kind, by

-- name: sizes
select n.nspname || '.' || c.relname as name, pg_table_size(c.oid) as table_bytes, pg_indexes_size(c.oid) as index_bytes,
       greatest(c.reltuples, 0)::bigint as rows
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where n.nspname in ('surefoot', 'dbos') and c.relkind = 'r'
 order by pg_total_relation_size(c.oid) desc, 1
