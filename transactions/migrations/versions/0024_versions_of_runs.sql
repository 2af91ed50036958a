-- app_version: the application version that began it last. pinned_version: the one that a person has moved it to, alone.
-- refused_by: versions that cannot carry it on. held_for: 'version', when it is held until a version lives that can.
-- asked: what a person wants of it at its next boundary, while it runs.
alter table surefoot.runs
    add column app_version    text,
    add column pinned_version text,
    add column refused_by     text[] not null default '{}',
    add column held_for       text,
    add column asked          text,
    add column asked_reason   text,
    add constraint runs_held_for_check check (held_for in ('version')) not valid,
    add constraint runs_asked_check check (asked in ('hold', 'hand on')
        and (asked <> 'hold' or asked_reason is not null)) not valid;

-- What an agent's own function made of a run's record when another version took it up. `messages` and `input` are what
-- it changed, as they were.
create table surefoot.state_migrations (
    run_id     text not null references surefoot.runs,
    segment    integer not null,
    tenant     text not null,
    from_state integer not null,
    to_state   integer not null,
    version    text not null,
    input      jsonb,
    messages   jsonb not null,
    at         timestamptz not null default clock_timestamp(),
    primary key (run_id, segment)
);
alter table surefoot.state_migrations enable row level security;
alter table surefoot.state_migrations force row level security;
create policy tenant on surefoot.state_migrations using (tenant = current_setting('surefoot.tenant', true));
create policy worker on surefoot.state_migrations to surefoot_worker using (true);
grant select, insert on surefoot.state_migrations to surefoot_app, surefoot_worker;

-- Whose schema and limits count for an agent.
create function surefoot.current_version(of_agent text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select v.version from surefoot.version_agents a join surefoot.versions v on v.version = a.version
     where a.agent = of_agent and v.current_since is not null order by v.current_since desc, v.n desc limit 1
$$;

-- Who carries a run on: the version that became current last among those that can read its state, have not refused it,
-- and, with `alive`, have a worker that takes work. Null: none. What has not begun has no state.
create function surefoot.version_for(of_run text, alive boolean default true) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select v.version
      from surefoot.runs r
      join surefoot.version_agents a on a.agent = r.agent
      join surefoot.versions v on v.version = a.version
     where r.run_id = of_run
       and (r.agent_version is null or r.state_version = any(a.reads))
       and v.version = coalesce(r.pinned_version, v.version)
       and v.version <> all(r.refused_by)
       and (not alive or exists (select 1 from surefoot.workers w where w.version = v.version and w.state = 'live'
                                    and w.lease_until > clock_timestamp() and w.ready_at is not null and w.draining_at is null))
     order by v.current_since desc nulls last, v.n desc limit 1
$$;

-- The tool of a call that a run waits for, whose delivery is due, and that no version could take for so long: one with the
-- tool, that reads the run's state, and has a worker that takes work. Null: there is no such call.
create function surefoot.call_for_nobody(of_run text, gone_s double precision) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select a.tool
      from surefoot.runs r
      join surefoot.waits w on w.run_id = r.run_id and w.segment = r.segment and w.state = 'open'
      join surefoot.actions a on a.action_id = w.action_id and a.run_id = r.run_id
      join surefoot.outbox_deliveries d on d.entry_id = a.action_id and d.consumer = 'effect'
     where r.run_id = of_run and r.ended_at is null
       and ((d.state = 'pending' and d.due_at <= clock_timestamp())
            or (d.state = 'claimed' and d.lease_until < clock_timestamp()))
       and not exists (
           select 1 from surefoot.version_agents v join surefoot.workers k on k.version = v.version
            where v.agent = a.agent and a.tool = any(v.tools) and r.state_version = any(v.reads)
              and coalesce(k.draining_at, k.ended_at, k.lease_until) > clock_timestamp() - make_interval(secs => gone_s))
     order by w.position limit 1
$$;

-- The one place that asks the engine for an execution. Null: whoever it takes for the latest version.
create function surefoot.ask_engine(run_id text, n integer, version text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform dbos.enqueue_workflow(
        workflow_name => 'surefoot.segment', queue_name => 'surefoot',
        positional_args => array[to_json(run_id), to_json(n)],
        workflow_id => run_id || ':' || n, app_version => version);
end $$;

-- The version of a worker that lives and is of the release before this schema, which announces none and knows one state of a
-- run; the newest. Null: there is none, or the run is not for it.
create function surefoot.unannounced_version(of_run text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select w.version from surefoot.runs r, surefoot.workers w
     where r.run_id = of_run and r.pinned_version is null and w.version <> all(r.refused_by) and r.state_version = 1
       and w.state = 'live' and w.lease_until > clock_timestamp()
       and not exists (select 1 from surefoot.versions v where v.version = w.version)
     order by w.started_at desc limit 1
$$;

-- Has a segment executed by the version that can carry its run on, or else by what there was before versions. While none of
-- those has a worker it waits for one, and the watchdog of another version moves or holds it; where there is none at all, the
-- current version takes it up, and holds it with the reason.
create function surefoot.hand_to_engine(run_id text, n integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform surefoot.ask_engine(run_id, n, coalesce(
        surefoot.version_for(run_id), surefoot.unannounced_version(run_id), surefoot.version_for(run_id, false),
        (select surefoot.current_version(r.agent) from surefoot.runs r where r.run_id = hand_to_engine.run_id)));
end $$;

create or replace function surefoot.enqueue_segment(run_id text, n integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform surefoot.hand_to_engine(run_id, n);
end $$;

-- What is new: a run that was held while it waited may wait again.
create or replace function surefoot.transitions() returns table (machine text, from_state text, to_state text)
language sql immutable parallel safe as $$
    select * from (values
        ('runs', '[*]', 'queued'),
        ('runs', 'queued', 'running'), ('runs', 'queued', 'held'), ('runs', 'queued', 'failed'),
        ('runs', 'queued', 'cancelled'),
        ('runs', 'running', 'queued'), ('runs', 'running', 'running'), ('runs', 'running', 'waiting'),
        ('runs', 'running', 'held'), ('runs', 'running', 'cancelling'), ('runs', 'running', 'completed'),
        ('runs', 'running', 'failed'),
        ('runs', 'waiting', 'queued'), ('runs', 'waiting', 'held'), ('runs', 'waiting', 'cancelled'),
        ('runs', 'held', 'queued'), ('runs', 'held', 'waiting'), ('runs', 'held', 'cancelled'),
        ('runs', 'cancelling', 'cancelled'),
        ('actions', '[*]', 'PREPARED'),
        ('actions', 'PREPARED', 'IN_FLIGHT'), ('actions', 'PREPARED', 'SUCCEEDED'), ('actions', 'PREPARED', 'FAILED'),
        ('actions', 'PREPARED', 'UNKNOWN'), ('actions', 'PREPARED', 'CANCELLED'),
        ('actions', 'IN_FLIGHT', 'PREPARED'), ('actions', 'IN_FLIGHT', 'SUCCEEDED'),
        ('actions', 'IN_FLIGHT', 'FAILED'), ('actions', 'IN_FLIGHT', 'UNKNOWN'),
        ('actions', 'UNKNOWN', 'PREPARED'), ('actions', 'UNKNOWN', 'SUCCEEDED'), ('actions', 'UNKNOWN', 'FAILED'),
        ('approvals', '[*]', 'pending'),
        ('approvals', 'pending', 'approved'), ('approvals', 'pending', 'rejected'),
        ('approvals', 'pending', 'expired'), ('approvals', 'pending', 'void'), ('approvals', 'pending', 'superseded'),
        ('approvals', 'approved', 'void'), ('approvals', 'approved', 'superseded'),
        ('outbox_deliveries', '[*]', 'parked'), ('outbox_deliveries', '[*]', 'pending'),
        ('outbox_deliveries', 'parked', 'pending'), ('outbox_deliveries', 'parked', 'claimed'),
        ('outbox_deliveries', 'parked', 'delivered'), ('outbox_deliveries', 'parked', 'dead'),
        ('outbox_deliveries', 'parked', 'discarded'),
        ('outbox_deliveries', 'pending', 'parked'), ('outbox_deliveries', 'pending', 'claimed'),
        ('outbox_deliveries', 'pending', 'delivered'), ('outbox_deliveries', 'pending', 'dead'),
        ('outbox_deliveries', 'pending', 'discarded'),
        ('outbox_deliveries', 'claimed', 'parked'), ('outbox_deliveries', 'claimed', 'pending'),
        ('outbox_deliveries', 'claimed', 'claimed'), ('outbox_deliveries', 'claimed', 'delivered'),
        ('outbox_deliveries', 'claimed', 'dead'), ('outbox_deliveries', 'claimed', 'discarded'),
        ('outbox_deliveries', 'dead', 'pending'), ('outbox_deliveries', 'dead', 'discarded')) as t (machine, from_state, to_state)
$$;

-- One row is a version and an agent that it serves; the newest first.
create view surefoot.version_status with (security_invoker = true) as
select v.tenant, v.n, v.version, a.agent, a.agent_version, a.state_version, a.reads,
       coalesce(v.version = surefoot.current_version(a.agent), false) as is_current, v.current_since, v.current_by, v.first_seen_at,
       (select count(*) from surefoot.workers w where w.version = v.version and w.state = 'live'
           and w.lease_until > clock_timestamp() and w.ready_at is not null and w.draining_at is null) as workers,
       (select count(*) from surefoot.workers w where w.version = v.version and w.state = 'live'
           and w.draining_at is not null) as draining
  from surefoot.versions v join surefoot.version_agents a on a.version = v.version;

-- One row is a run that is not over: which version began it last, and which one carries it on.
create view surefoot.run_versions with (security_invoker = true) as
select r.run_id, r.tenant, r.agent, r.state, r.agent_version, r.state_version, r.app_version, r.pinned_version, r.refused_by,
       r.asked, r.held_for, surefoot.version_for(r.run_id) as next_version
  from surefoot.runs r where r.ended_at is null;

grant select on surefoot.version_status, surefoot.run_versions to surefoot_app, surefoot_worker;
