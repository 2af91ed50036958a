-- name: set
insert into surefoot.limits (tenant, everyone, agent, running_max, queued_max, starts_max, period_s, changed_by)
values (:tenant, :everyone, :agent, :running_max, :queued_max, :starts_max, :period_s, :by)
on conflict (tenant, everyone, agent) do update
   set running_max = excluded.running_max, queued_max = excluded.queued_max, starts_max = excluded.starts_max,
       period_s = excluded.period_s, changed_at = clock_timestamp(), changed_by = excluded.changed_by

-- name: unset
update surefoot.limits
   set running_max = null, queued_max = null, starts_max = null, period_s = null, changed_at = clock_timestamp(), changed_by = :by
 where tenant = :tenant and everyone = :everyone and agent = :agent
   and (running_max is not null or queued_max is not null or starts_max is not null)
returning tenant

-- name: page
select case when not l.everyone then l.tenant end as of_tenant, nullif(l.agent, '') as agent,
       l.running_max, l.queued_max, l.starts_max, l.period_s, l.changed_at, l.changed_by
  from surefoot.limits l
 where (l.running_max is not null or l.queued_max is not null or l.starts_max is not null)
   and (cast(:tenant as text) is null or everyone or tenant = :tenant)
 order by l.everyone, l.tenant, l.agent
