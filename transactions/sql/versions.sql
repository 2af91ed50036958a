-- name: add_if_new
insert into surefoot.versions (version, current_by) values (:version, 'deploy') on conflict (version) do nothing

-- name: put_agent
insert into surefoot.version_agents (version, agent, agent_version, state_version, reads, tools, input_schema, limits)
values (:version, :agent, :agent_version, :state_version, :reads, :tools, cast(:input_schema as jsonb), cast(:limits as jsonb))
on conflict (version, agent) do update set tools = excluded.tools, input_schema = excluded.input_schema, limits = excluded.limits

-- name: agents_of
select agent, agent_version, state_version, reads from surefoot.version_agents where version = :version order by agent

-- name: announce_where_current
insert into surefoot.agents (tenant, name, version, input_schema, limits)
select a.tenant, a.agent, a.agent_version, a.input_schema, a.limits
  from surefoot.version_agents a
 where a.version = :version and surefoot.current_version(a.agent) = a.version
 order by a.agent
on conflict (tenant, name) do update
   set version = excluded.version, input_schema = excluded.input_schema, limits = excluded.limits, seen_at = clock_timestamp()

-- name: find
select version, n from surefoot.versions where version = :version or n::text = :version

-- name: make_current
update surefoot.versions
   set current_since = greatest(clock_timestamp(), (select max(current_since) + interval '1 microsecond' from surefoot.versions)),
       current_by = :by
 where version = :version

-- name: make_current_if_never
update surefoot.versions
   set current_since = greatest(clock_timestamp(), (select max(current_since) + interval '1 microsecond' from surefoot.versions))
 where version = :version and current_since is null
returning n

-- name: page
select s.*, (select count(*) from surefoot.runs r
         where r.tenant = :tenant and r.ended_at is null and r.app_version = s.version and r.agent = s.agent) as runs,
       (select count(*) from surefoot.runs r
         where r.tenant = :tenant and r.ended_at is null and r.app_version = s.version and r.agent = s.agent
           and not exists (select 1 from surefoot.version_agents c
                            where c.agent = r.agent and c.version = surefoot.current_version(r.agent)
                              and c.version = coalesce(r.pinned_version, c.version)
                              and r.state_version = any(c.reads) and c.version <> all(r.refused_by))) as bound_runs
  from surefoot.version_status s
 order by s.n desc, s.agent limit :limit

-- name: newest_where_current_is_gone
-- Of each agent whose current version has had no worker that takes work for so long, while another had one, the newest
-- version that has one. Not one that would take an agent from its current version which has a worker.
select distinct next.version
  from (select distinct agent from surefoot.version_agents) a
  cross join lateral (
    select v.version from surefoot.version_agents s join surefoot.versions v on v.version = s.version
     where s.agent = a.agent
       and exists (select 1 from surefoot.workers w where w.version = v.version and w.state = 'live'
                      and w.lease_until > clock_timestamp() and w.ready_at is not null and w.draining_at is null)
     order by v.current_since desc nulls last, v.n desc limit 1) next
 where next.version <> surefoot.current_version(a.agent)
   and not exists (select 1 from surefoot.workers w where w.version = surefoot.current_version(a.agent)
                      and coalesce(w.draining_at, w.ended_at, w.lease_until) > clock_timestamp() - make_interval(secs => :gone_s))
   and exists (select 1 from surefoot.workers w
                where w.state = 'live' and w.lease_until > clock_timestamp() and w.started_at < clock_timestamp() - make_interval(secs => :gone_s))
   and not exists (select 1 from surefoot.version_agents o join surefoot.workers w on w.version = surefoot.current_version(o.agent)
                    where o.version = next.version and w.version <> next.version
                      and w.state = 'live' and w.lease_until > clock_timestamp() and w.draining_at is null)
 order by next.version
