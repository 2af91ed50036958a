-- name: set
insert into surefoot.schedules as s (tenant, name, agent, input, cron, time_zone, principal, priority, missed, overlap, enabled, next_at, changed_by)
values (:tenant, :name, :agent, cast(:input as jsonb), :cron, :time_zone, :principal, :priority, :missed, :overlap, true, :next_at, :principal)
on conflict (tenant, name) do update
   set agent = excluded.agent, input = excluded.input, cron = excluded.cron, time_zone = excluded.time_zone,
       principal = excluded.principal, priority = excluded.priority, missed = excluded.missed, overlap = excluded.overlap,
       enabled = s.enabled or s.removed_at is not null,
       next_at = case when s.enabled or s.removed_at is not null then excluded.next_at end, last_why = null,
       changed_at = clock_timestamp(), changed_by = excluded.changed_by, removed_at = null

-- name: now
select clock_timestamp() as now

-- name: get
select s.*, clock_timestamp() as now from surefoot.schedules s
 where s.tenant = :tenant and s.name = :name and s.removed_at is null for no key update

-- name: page
select s.name, s.agent, s.input, s.cron, s.time_zone, s.principal, s.priority, s.missed, s.overlap, s.enabled, s.next_at,
       s.last_at, s.last_run_id, s.last_why, s.changed_at, s.changed_by
  from surefoot.schedules s where tenant = :tenant and removed_at is null order by s.name

-- name: remove
update surefoot.schedules set removed_at = clock_timestamp(), next_at = null, changed_at = clock_timestamp(), changed_by = :by
 where tenant = :tenant and name = :name and removed_at is null returning name

-- name: enable
update surefoot.schedules set enabled = :enabled, next_at = :next_at, changed_at = clock_timestamp(), changed_by = :by
 where tenant = :tenant and name = :name and removed_at is null

-- name: due
select s.*, clock_timestamp() as now,
       exists (select 1 from surefoot.runs r where r.run_id = s.last_run_id and r.ended_at is null) as goes_on
  from surefoot.schedules s where s.next_at <= clock_timestamp()
 order by s.next_at limit :limit for no key update skip locked

-- name: advance
update surefoot.schedules
   set next_at = :next_at, last_at = coalesce(:at, last_at), last_run_id = coalesce(:run_id, last_run_id), last_why = :why
 where tenant = :tenant and name = :name
