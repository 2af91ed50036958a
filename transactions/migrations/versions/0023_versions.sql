-- Application versions: every one that a worker was ever started with. The one that became current last is current.
-- current_since: null until one of its workers is ready for the first time.
create table surefoot.versions (
    version       text primary key check (length(version) between 1 and 4000),
    tenant        text not null default 'default',
    n             integer generated always as identity unique,
    first_seen_at timestamptz not null default clock_timestamp(),
    current_since timestamptz,
    current_by    text not null
);

-- What a version serves: which state of a run each of its agents writes, which it can read, as it is or by migrating, and
-- the tools that it has.
create table surefoot.version_agents (
    version       text not null references surefoot.versions,
    agent         text not null,
    tenant        text not null default 'default',
    agent_version text not null,
    state_version integer not null check (state_version > 0),
    reads         integer[] not null,
    tools         text[] not null,
    input_schema  jsonb not null,
    limits        jsonb not null,
    primary key (version, agent),
    check (state_version = any(reads))
);
create index version_agents_of_agent on surefoot.version_agents (agent);

do $$
declare t text;
begin
    foreach t in array array['versions', 'version_agents'] loop
        execute format('alter table surefoot.%I enable row level security', t);
        execute format('alter table surefoot.%I force row level security', t);
        execute format('create policy tenant on surefoot.%I using (tenant = current_setting(''surefoot.tenant'', true))', t);
        execute format('create policy worker on surefoot.%I to surefoot_worker using (true)', t);
        execute format('create policy deployment on surefoot.%I for select using (tenant = ''default''
                        and current_setting(''surefoot.tenant'', true) <> '''')', t);
    end loop;
end $$;
grant select on surefoot.versions, surefoot.version_agents to surefoot_app;
grant select, insert, update on surefoot.versions, surefoot.version_agents to surefoot_worker;

-- draining_at: from when on it claims nothing any more, and hands on what it has. ready_at: from when on it takes work; before
-- that it may yet fail to start. slots, agents: how many segments it runs at once, and of which agents; null while it does not
-- say. All of them here, for each table commits alone.
alter table surefoot.workers
    add column draining_at timestamptz,
    add column ready_at timestamptz,
    add column slots integer,
    add column agents text[];
