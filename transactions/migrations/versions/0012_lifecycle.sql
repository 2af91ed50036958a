-- Columns with a constant default, which rewrite nothing. Agents before runs, as those who start a run lock them.
-- A worker of an older version announces no limits; `steps.RunLimits` has the same defaults.
alter table surefoot.agents add column limits jsonb not null default
    '{"queued_s_max": 300, "running_s_max": 3600, "waiting_s_max": 604800, "held_s_max": 86400, "cancelling_s_max": 60}';
alter table surefoot.runs add column phase text,
    add constraint runs_phase_check check (length(phase) between 1 and 60) not valid;

-- What may follow what: `transactions/states.py` says the same. `[*]`: a row may begin so.
-- Without a search_path of its own, for then it is inlined; it names nothing that could be found elsewhere.
create function surefoot.transitions() returns table (machine text, from_state text, to_state text)
language sql immutable parallel safe as $$
    select * from (values
        ('runs', '[*]', 'queued'),
        ('runs', 'queued', 'running'), ('runs', 'queued', 'held'), ('runs', 'queued', 'failed'),
        ('runs', 'queued', 'cancelled'),
        ('runs', 'running', 'queued'), ('runs', 'running', 'running'), ('runs', 'running', 'waiting'),
        ('runs', 'running', 'held'), ('runs', 'running', 'cancelling'), ('runs', 'running', 'completed'),
        ('runs', 'running', 'failed'),
        ('runs', 'waiting', 'queued'), ('runs', 'waiting', 'held'), ('runs', 'waiting', 'cancelled'),
        ('runs', 'held', 'queued'), ('runs', 'held', 'cancelled'),
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

-- The arguments name what identifies a row, for the person who reads the error.
create function surefoot.keep_transitions() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_from text := coalesce(old.state, '[*]');
begin
    if exists (select 1 from surefoot.transitions() t
                where t.machine = tg_table_name and t.from_state = v_from and t.to_state = new.state) then
        return new;
    end if;
    raise exception '% % cannot % %: it may become %', tg_table_name,
        (select string_agg(to_jsonb(new) ->> k, ' ') from unnest(tg_argv) k),
        case v_from when '[*]' then 'begin as' else 'go from ' || v_from || ' to' end, new.state,
        coalesce((select string_agg(t.to_state, ', ') from surefoot.transitions() t
                   where t.machine = tg_table_name and t.from_state = v_from), 'nothing else: that is its end')
        using errcode = 'SF004', hint = 'See the diagrams in transactions/README.md, and surefoot.transitions().';
end $$;

-- How long a run was in which state: a row for each time that it entered one. Of a run that is over none is open.
create table surefoot.run_states (
    run_id     text not null references surefoot.runs,
    n          integer not null check (n > 0),
    tenant     text not null,
    state      text not null,
    entered_at timestamptz not null,
    left_at    timestamptz check (left_at >= entered_at),
    primary key (run_id, n)
);
create unique index run_states_open on surefoot.run_states (run_id) where left_at is null;

alter table surefoot.run_states enable row level security;
alter table surefoot.run_states force row level security;
create policy tenant on surefoot.run_states using (tenant = current_setting('surefoot.tenant', true));
create policy worker on surefoot.run_states to surefoot_worker using (true);
grant select, insert, update on surefoot.run_states to surefoot_app, surefoot_worker;

-- In the commit that changes the state, whatever changed it.
create function surefoot.keep_time() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_now timestamptz := clock_timestamp();
    v_n integer;
begin
    update surefoot.run_states set left_at = greatest(v_now, entered_at)
     where run_id = new.run_id and left_at is null returning n into v_n;
    if v_n is null then
        select max(s.n) into v_n from surefoot.run_states s where s.run_id = new.run_id;
    end if;
    insert into surefoot.run_states (run_id, n, tenant, state, entered_at, left_at)
    values (new.run_id, coalesce(v_n, 0) + 1, new.tenant, new.state, v_now, case when new.ended_at is not null then v_now end);
    return null;
end $$;

create trigger keep_first_state before insert on surefoot.runs
    for each row execute function surefoot.keep_transitions('run_id');
create trigger keep_transitions before update on surefoot.runs
    for each row when (old.state is distinct from new.state) execute function surefoot.keep_transitions('run_id');
create trigger keep_time_of_first_state after insert on surefoot.runs
    for each row execute function surefoot.keep_time();
create trigger keep_time after update on surefoot.runs
    for each row when (old.state is distinct from new.state) execute function surefoot.keep_time();

-- Those that are open, under the lock that the triggers took; those that are over change no more: 0013 has them.
insert into surefoot.run_states (run_id, n, tenant, state, entered_at)
select run_id, 1, tenant, state, updated_at from surefoot.runs where ended_at is null;
