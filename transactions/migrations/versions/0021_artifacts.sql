-- Where the bytes are: in the row, or an object of a store outside. result_of: the action or call whose large result it is;
-- a read has no action. No row is rewritten, and the checks on `content` hold for rows that have it.
alter table surefoot.artifacts
    add column store text not null default 'postgres',
    add column object text,
    add column result_of text,
    alter column content drop not null,
    alter column action_id drop not null;
-- Not validated: the rows that are there are in Postgres and of an action, and so no scan holds the lock.
alter table surefoot.artifacts add constraint artifacts_place_check check (
    case when store = 'postgres' then content is not null and object is null
         else content is null and object is not null end) not valid;
alter table surefoot.artifacts add constraint artifacts_origin_check
    check (action_id is not null or result_of is not null) not valid;

-- A row is committed before the bytes of its object are written, and taken by the commit that references the object. Who
-- does not get it may not reference: the sweeper had it.
create table surefoot.staged_objects (
    object     text primary key check (length(object) between 1 and 200),
    tenant     text not null,
    store      text not null check (store <> 'postgres'),
    created_at timestamptz not null default clock_timestamp()
);
create index staged_objects_created on surefoot.staged_objects (store, created_at);

-- When each store was swept last, so that the workers together do it at one pace.
create table surefoot.artifact_sweeps (
    tenant   text not null,
    store    text not null,
    swept_at timestamptz not null default clock_timestamp(),
    primary key (tenant, store)
);

do $$
declare t text;
begin
    foreach t in array array['staged_objects', 'artifact_sweeps'] loop
        execute format('alter table surefoot.%I enable row level security', t);
        execute format('alter table surefoot.%I force row level security', t);
        execute format('create policy tenant on surefoot.%I using (tenant = current_setting(''surefoot.tenant'', true))', t);
        execute format('create policy worker on surefoot.%I to surefoot_worker using (true)', t);
    end loop;
end $$;
grant select, insert, delete on surefoot.staged_objects to surefoot_app;
grant select, update, delete on surefoot.staged_objects to surefoot_worker;  -- update: to pass over rows that are locked
grant select on surefoot.artifact_sweeps to surefoot_app;
grant select, insert, update on surefoot.artifact_sweeps to surefoot_worker;

-- The name under which this database keeps its objects in a store, so that another one in the same folder or bucket is
-- left alone by its sweeper.
do $$ begin
    execute format('create function surefoot.deployment() returns text language sql immutable as $f$ select %L::text $f$',
                   gen_random_uuid());
end $$;
