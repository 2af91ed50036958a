-- A column with a constant default, which rewrites nothing.
alter table surefoot.runs add column priority integer not null default 0,
    add constraint runs_priority_check check (priority between -100 and 100) not valid;

-- How much of a tenant, of an agent or of both may run, wait and start. The deployment's own: everyone, for the runs of
-- all tenants together. agent '': all agents. A row without a limit limits nothing.
create table surefoot.limits (
    tenant      text not null references surefoot.tenants,
    everyone    boolean not null default false,
    agent       text not null default '' check (length(agent) <= 200),
    running_max integer check (running_max between 0 and 1000000),
    queued_max  integer check (queued_max between 0 and 1000000),
    starts_max  integer check (starts_max between 1 and 10000),
    period_s    double precision check (period_s between 0.1 and 86400),
    changed_at  timestamptz not null default clock_timestamp(),
    changed_by  text not null,
    primary key (tenant, everyone, agent),
    check ((starts_max is null) = (period_s is null)),
    check (not everyone or tenant = 'default')
);

-- What the last look of a dispatcher found, of tenant default, for all: how many more runs the live workers have room
-- for (null: it does not know) and of which agents for less; which agents are at a limit of all tenants' ('': all are);
-- whether anything waits for room. `handed`: the number of `surefoot.handed` at that look, so that whoever starts a run can tell what was handed over since.
create table surefoot.dispatch (
    tenant    text primary key,
    room      integer,
    rooms     jsonb not null default '{}',
    reached   text[] not null default '{}',
    backlog   boolean not null default false,
    handed    bigint not null default 0,
    looked_at timestamptz not null default clock_timestamp()
);
-- Until a dispatcher has looked, what begins waits for it; only where workers of before live, who hand over nothing, it does not.
insert into surefoot.dispatch (tenant, room)
select 'default', case when not exists (select 1 from surefoot.workers w where w.state = 'live') then 0 end;
create sequence surefoot.handed;
select nextval('surefoot.handed');  -- so that its last value is one that was given out

-- When a run of a tenant was last admitted: of those with as few running, who was not served for longest comes first.
create table surefoot.queue_turns (
    tenant    text primary key,
    served_at timestamptz not null
);

-- Runs that start by the clock. next_at: when it is due next; null: never again, or it is paused.
create table surefoot.schedules (
    tenant      text not null references surefoot.tenants,
    name        text not null check (name ~ '^[A-Za-z0-9_.-]{1,100}$'),
    agent       text not null,
    input       jsonb not null check (octet_length(input::text) <= 1048576),
    cron        text not null check (length(cron) <= 200),
    time_zone   text not null check (length(time_zone) <= 100),
    principal   text not null,
    priority    integer not null check (priority between -100 and 100),
    missed      text not null check (missed in ('last', 'all', 'none')),
    overlap     text not null check (overlap in ('skip', 'allow')),
    enabled     boolean not null,
    next_at     timestamptz,
    last_at     timestamptz,
    last_run_id text,
    last_why    text,
    changed_at  timestamptz not null default clock_timestamp(),
    changed_by  text not null,
    removed_at  timestamptz,
    primary key (tenant, name),
    check (next_at is null or (enabled and removed_at is null))
);
create index schedules_due on surefoot.schedules (next_at) where next_at is not null;

do $$
declare t text;
begin
    foreach t in array array['limits', 'dispatch', 'queue_turns', 'schedules'] loop
        execute format('alter table surefoot.%I enable row level security', t);
        execute format('alter table surefoot.%I force row level security', t);
        execute format('create policy tenant on surefoot.%I using (tenant = current_setting(''surefoot.tenant'', true))', t);
        execute format('create policy worker on surefoot.%I to surefoot_worker using (true)', t);
    end loop;
end $$;
-- Every tenant goes by the limits of all tenants, and by the room there is; tenant default's own limits are its own.
create policy deployment on surefoot.limits for select using (everyone and current_setting('surefoot.tenant', true) <> '');
create policy deployment on surefoot.dispatch for select using (tenant = 'default' and current_setting('surefoot.tenant', true) <> '');
grant select on surefoot.limits, surefoot.dispatch, surefoot.queue_turns to surefoot_app;
grant select, insert, update on surefoot.limits, surefoot.dispatch, surefoot.queue_turns to surefoot_worker;
grant select, insert, update on surefoot.schedules to surefoot_app, surefoot_worker;
grant usage, select on sequence surefoot.handed to surefoot_app, surefoot_worker;
