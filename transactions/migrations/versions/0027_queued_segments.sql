-- queued_at: from when on it may be admitted. A segment of an older version is opened as before, past every limit.
-- rated: it was admitted under a limit on starts, which counts it. begins: its run had not begun when it was queued.
alter table surefoot.segments
    add column agent text,
    add column priority integer not null default 0,
    add column queued_at timestamptz,
    add column admitted_at timestamptz,
    add column rated boolean not null default false,
    add column begins boolean not null default false,
    drop constraint segments_state_check,
    add constraint segments_state_check check (state in ('delayed', 'waiting', 'open', 'settled')) not valid,
    add constraint segments_queued_check check
        (state not in ('delayed', 'waiting') or (agent is not null and queued_at is not null)) not valid;
update surefoot.segments s set agent = r.agent, admitted_at = s.created_at
  from surefoot.runs r where r.run_id = s.run_id and s.state = 'open';

-- Writers of an older version do not say whose it is.
create function surefoot.fill_segment() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    select r.agent into new.agent from surefoot.runs r where r.run_id = new.run_id;
    return new;
end $$;
create trigger fill_segment before insert on surefoot.segments for each row
    when (new.agent is null) execute function surefoot.fill_segment();

-- What may follow what of a segment, besides what is there of other machines.
do $$
declare
    v_rows text;
begin
    select string_agg(format('(%L, %L, %L)', t.machine, t.from_state, t.to_state), ', ') into v_rows from (
        select * from surefoot.transitions()
        union all
        values ('segments', '[*]', 'delayed'), ('segments', '[*]', 'waiting'), ('segments', '[*]', 'open'),
               ('segments', 'delayed', 'waiting'), ('segments', 'delayed', 'settled'),
               ('segments', 'waiting', 'open'), ('segments', 'waiting', 'settled'),
               ('segments', 'open', 'waiting'), ('segments', 'open', 'settled')) t (machine, from_state, to_state);
    execute format('create or replace function surefoot.transitions() returns table (machine text, from_state text, to_state text)
                    language sql immutable parallel safe as $f$ select * from (values %s) as t (machine, from_state, to_state) $f$', v_rows);
end $$;
create trigger keep_first_state before insert on surefoot.segments
    for each row execute function surefoot.keep_transitions('run_id', 'n');
create trigger keep_transitions before update on surefoot.segments
    for each row when (old.state is distinct from new.state) execute function surefoot.keep_transitions('run_id', 'n');

-- The one place that asks the engine for an execution, of a segment that is open. No version is named here: the newest
-- one that is live takes it. Left alone where there is one already, which may choose a version.
do $$ begin
    if to_regprocedure('surefoot.hand_to_engine(text, integer)') is null then
        create function surefoot.hand_to_engine(run_id text, n integer) returns void
        language plpgsql set search_path = pg_catalog, pg_temp as $f$
        begin
            perform dbos.enqueue_workflow(
                workflow_name => 'surefoot.segment', queue_name => 'surefoot',
                positional_args => array[to_json(run_id), to_json(n)],
                workflow_id => run_id || ':' || n);
        end $f$;
    end if;
end $$;

-- What a worker of an older version calls, which has opened the segment itself.
create or replace function surefoot.enqueue_segment(run_id text, n integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform surefoot.hand_to_engine(run_id, n);
end $$;

-- Queues segment `n` of a run. Where nothing is in the way it is open with this commit, and the engine has it: no limit
-- on what runs or starts holds for it, nobody of its tenant and agent waits before it, and there is room. Else it waits
-- for a dispatcher. Of the room, each takes a number, which no transaction waits for: not even those that roll back.
-- not_before: its place among those that wait, also where that is past; null: behind them.
create function surefoot.open_segment(
    run_id text, n integer, tenant text, agent text, priority integer, not_before timestamptz
) returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_now timestamptz := clock_timestamp();
    v_state text := 'waiting';
    v_begins boolean := (select r.agent_version is null from surefoot.runs r where r.run_id = open_segment.run_id);
begin
    if not_before > v_now then
        v_state := 'delayed';
    elsif not exists (select 1 from surefoot.limits l
                       where l.tenant in ('default', open_segment.tenant) and (l.everyone or l.tenant = open_segment.tenant)
                         and l.agent in ('', open_segment.agent)
                         and (l.running_max is not null or (l.starts_max is not null and v_begins)))
      and not exists (select 1 from surefoot.segments s
                       where s.state = 'waiting' and s.tenant = open_segment.tenant and s.agent = open_segment.agent
                         and (s.priority > open_segment.priority
                              or (s.priority = open_segment.priority and (not s.begins or v_begins))))
      and coalesce((select case when x.room is null then true
                                when x.room = 0 then false
                                else nextval('surefoot.handed') - x.handed <= x.room end
                      from (select least(d.room, (d.rooms ->> open_segment.agent)::integer) as room, d.handed
                              from surefoot.dispatch d where d.tenant = 'default') x), true) then
        v_state := 'open';
    end if;
    insert into surefoot.segments (run_id, n, tenant, agent, priority, state, begins, queued_at, admitted_at)
    values (run_id, n, tenant, agent, priority, v_state, v_begins, coalesce(not_before, v_now), case when v_state = 'open' then v_now end);
    if v_state = 'open' then
        perform surefoot.hand_to_engine(run_id, n);
    end if;
end $$;

-- Refuses (errcode SF005) while as many runs wait to begin as a limit lets. What is delayed waits, too. The detail says
-- when to ask again: how long it takes, by the age of the oldest, until one of them begins.
create function surefoot.refuse_if_full(tenant text, agent text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_now timestamptz := clock_timestamp();
    l record;
    v_queued bigint;
    v_oldest timestamptz;
    v_full integer;
begin
    for l in select * from surefoot.limits x
              where x.tenant in ('default', refuse_if_full.tenant) and (x.everyone or x.tenant = refuse_if_full.tenant)
                and x.agent in ('', refuse_if_full.agent) and x.queued_max is not null loop
        if l.everyone then
            v_full := surefoot.full_for(l.agent);
            continue when v_full is null;
            raise exception 'the queue of % is full: as many runs of all tenants wait to begin as may: try again later',
                case l.agent when '' then 'this deployment' else 'agent "' || l.agent || '"' end
                using errcode = 'SF005', detail = 'retry after ' || v_full || ' s';
        end if;
        select count(*), min(q.queued_at) into v_queued, v_oldest from (
            (select s.queued_at from surefoot.segments s
              where s.state = 'waiting' and s.begins and s.tenant = refuse_if_full.tenant and l.agent in ('', s.agent)
              limit l.queued_max)
            union all
            (select s.queued_at from surefoot.segments s
              where s.state = 'delayed' and s.begins and s.tenant = refuse_if_full.tenant and l.agent in ('', s.agent)
              limit l.queued_max)) q;
        if v_queued >= l.queued_max then
            raise exception 'the queue of tenant "%"% is full: % runs wait to begin, and % may: try again later, or have the limit raised',
                refuse_if_full.tenant, case l.agent when '' then '' else ' and agent "' || l.agent || '"' end,
                v_queued, l.queued_max
                using errcode = 'SF005', detail = 'retry after ' || surefoot.retry_after_s(v_oldest, v_queued) || ' s';
        end if;
    end loop;
end $$;

-- By the age of the oldest of those that wait: one of so many begins in so many seconds. From 1 to 60.
create function surefoot.retry_after_s(oldest timestamptz, queued bigint) returns integer
language sql stable set search_path = pg_catalog, pg_temp as $$
    select least(60, greatest(1, coalesce(ceil(extract(epoch from clock_timestamp() - oldest) / nullif(queued, 0)), 60)))::integer
$$;

-- In how many seconds to ask again while as many runs of all tenants wait to begin as the deployment's limit of an agent ('': of
-- all agents) lets; null: fewer do. As its owner, who sees the rows of all tenants, and tells no more of them than this.
create function surefoot.full_for(of_agent text) returns integer
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select (select case when count(*) >= l.queued_max then surefoot.retry_after_s(min(q.queued_at), count(*)) end from (
               (select s.queued_at from surefoot.segments s
                 where s.state = 'waiting' and s.begins and l.agent in ('', s.agent) limit l.queued_max)
               union all
               (select s.queued_at from surefoot.segments s
                 where s.state = 'delayed' and s.begins and l.agent in ('', s.agent) limit l.queued_max)) q)
      from surefoot.limits l
     where l.tenant = 'default' and l.everyone and l.agent = of_agent and l.queued_max is not null
$$;
revoke all on function surefoot.full_for(text) from public;

-- Starts a run in the caller's own transaction, from any language. Returns its id; the same key and input is the
-- same run (errcode SF001: another input; SF002: unknown agent; SF003: no such tenant, or a transaction of another one;
-- SF005: its queue is full; SF006: a priority or delay out of bounds). priority: from -100 to 100, the higher first;
-- not_before: when it may begin.
drop function surefoot.start_run(text, jsonb, text, text, text);
create function surefoot.start_run(
    agent text, input jsonb, idempotency_key text default null, tenant text default 'default',
    principal text default 'unauthenticated', priority integer default 0, not_before timestamptz default null
) returns text language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_hash text := encode(sha256(convert_to(agent || E'\n' || input::text, 'UTF8')), 'hex');
    v_run text;
    v_seen text;
    v_caller text := coalesce(current_setting('surefoot.tenant', true), '');
begin
    if priority not between -100 and 100 then
        raise exception 'a priority is from -100 to 100, and this is %: correct it', priority using errcode = 'SF006';
    elsif not_before > clock_timestamp() + interval '366 days' then
        raise exception 'a run may be delayed by at most 366 days, not until %: start it later, or have a schedule start it', not_before
            using errcode = 'SF006';
    end if;
    if v_caller not in ('', tenant) then
        raise exception 'this transaction is bound to tenant "%" and may not start a run of tenant "%": start it in one of its own',
            v_caller, tenant using errcode = 'SF003';
    end if;
    perform set_config('surefoot.tenant', tenant, true);
    if not exists (select 1 from surefoot.tenants t where t.tenant = start_run.tenant) then
        raise exception 'no tenant named "%": make it with `surefoot tenants create`', tenant using errcode = 'SF003';
    end if;
    if not exists (select 1 from surefoot.agents a where a.tenant = 'default' and a.name = agent) then
        raise exception 'no agent named "%": start a worker that serves it, or choose one of: %', agent,
            coalesce((select string_agg(a.name, ', ' order by a.name) from surefoot.agents a where a.tenant = 'default'), '(none)')
            using errcode = 'SF002';
    end if;
    -- Before anything is written, so that a flood of refused starts leaves nothing behind. A run that is there is answered.
    if exists (select 1 from surefoot.limits l where l.tenant in ('default', start_run.tenant) and l.queued_max is not null)
       and not exists (select 1 from surefoot.runs r where r.tenant = start_run.tenant and r.agent = start_run.agent
                          and r.idempotency_key = start_run.idempotency_key) then
        perform surefoot.refuse_if_full(tenant, agent);
    end if;
    -- A run that is there for the insert may be removed, for its age, before it is looked at: then its key starts anew.
    for v_try in 1 .. 9 loop
        insert into surefoot.runs as r (run_id, tenant, agent, principal, input, request_hash, idempotency_key, priority, event_seq)
        values (gen_random_uuid()::text, tenant, agent, principal, input, v_hash, idempotency_key, priority, 1)
        on conflict do nothing returning r.run_id into v_run;
        exit when v_run is not null;
        select r.run_id, r.request_hash into v_run, v_seen from surefoot.runs r
        where r.tenant = start_run.tenant and r.agent = start_run.agent
          and r.idempotency_key = start_run.idempotency_key;
        continue when v_run is null and v_try < 9;
        if v_seen is distinct from v_hash then
            raise exception 'key "%" already started run % with another input: use a new key, or send the first input',
                idempotency_key, v_run using errcode = 'SF001';
        end if;
        perform set_config('surefoot.tenant', v_caller, true);
        return v_run;
    end loop;
    insert into surefoot.events (run_id, seq, tenant, kind, data, generation)
    values (v_run, 1, tenant, 'run.queued', jsonb_build_object('agent', agent), 0);
    perform surefoot.open_segment(v_run, 0, tenant, agent, priority, greatest(not_before, clock_timestamp()));
    perform set_config('surefoot.tenant', v_caller, true);
    return v_run;
end $$;
grant execute on all functions in schema surefoot to surefoot_app, surefoot_worker;
