-- What is kept for how long, what retention has done, and the one role that may remove.

-- Of a tenant, or of one agent of it; agent '': of every one that has no row of its own. keep_s 'Infinity': for ever; null:
-- as the setting of the deployment says.
create table surefoot.retention_policies (
    tenant     text not null references surefoot.tenants,
    kind       text not null check (kind in ('messages', 'events', 'outbox', 'artifacts', 'runs', 'keys')),
    agent      text not null default '',
    keep_s     double precision check (keep_s >= 1 and (keep_s <= 3155760000 or keep_s = 'Infinity')),
    changed_at timestamptz not null default clock_timestamp(),
    changed_by text not null check (length(changed_by) between 1 and 200),
    primary key (tenant, kind, agent)
);

-- When each kind was last gone through, so that the workers together do it at one pace; goes_on_at: when the next batch of
-- that pass is done, or of one that has ended, when its last one was.
create table surefoot.retention_passes (
    tenant   text not null default 'default',
    kind     text not null,
    begun_at timestamptz not null default clock_timestamp(),
    goes_on_at timestamptz not null default clock_timestamp(),
    primary key (tenant, kind)
);

-- How much was removed, a row a day: `items` are runs, segments, entries, versions; `rows` are the rows of all tables.
create table surefoot.removals (
    tenant  text not null,
    day     date not null,
    kind    text not null,
    by      text not null check (length(by) between 1 and 200),
    items   bigint not null check (items >= 0),
    rows    bigint not null check (rows >= 0),
    last_at timestamptz not null default clock_timestamp(),
    primary key (tenant, day, kind, by)
);

-- The last version that an artifact had which is removed, so that its number is given to no other bytes.
create table surefoot.artifact_numbers (
    tenant       text not null,
    name         text not null,
    last_version integer not null check (last_version > 0),
    removed_at   timestamptz not null default clock_timestamp(),
    primary key (tenant, name)
);

-- What was removed of a run that is over and is kept itself. No row is rewritten.
alter table surefoot.runs
    add column messages_removed_at timestamptz,
    add column events_removed_at   timestamptz,
    add column outbox_removed_at   timestamptz;

create function surefoot.keep_s(tenant text, agent text, kind text, default_s double precision) returns double precision
language sql stable as $$
    select coalesce((select p.keep_s from surefoot.retention_policies p
                      where p.tenant = $1 and p.kind = $3 and p.agent in ('', $2) and p.keep_s is not null
                      order by p.agent desc limit 1), $4)
$$;

create function surefoot.is_kept(since timestamptz, keep_s double precision) returns boolean
language sql stable as $$
    select case when keep_s = 'Infinity' then true else since > statement_timestamp() - make_interval(secs => keep_s) end
$$;

-- Both are dear, so that they are never asked of row after row where there is an index on what they say.
-- Every reference to a version of an artifact, each as one text. The bytes alone say too little where references stay for good:
-- any number of versions may have the same ones.
create function surefoot.references_in(value jsonb) returns text[]
language sql immutable parallel safe cost 10000 as $$
    select array(select (m.found ->> 'sha256') || ' ' || (m.found ->> 'version') || ' ' || (m.found ->> 'name')
                   from jsonb_path_query(value, '$.** ? (exists (@.sha256))') as m (found)
                  where m.found ? 'version' and m.found ? 'name')
$$;

-- Whatever looks like the SHA-256 of an artifact, also inside of a text: a model's call may give its arguments as one.
create function surefoot.hashes_in(message jsonb) returns text[]
language sql immutable parallel safe cost 10000 as $$
    select array(select m.found[1] from regexp_matches(message::text, '[0-9a-f]{64}', 'g') as m (found))
$$;

-- The engine makes this table only where an application uses its datasources; what it leaves there nobody else removes.
create function surefoot.remove_datasource_orphans(after text, up_to integer, out removed bigint, out last_id text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    removed := 0;
    if to_regclass('dbos.datasource_outputs') is null
       or not has_table_privilege(current_user, to_regclass('dbos.datasource_outputs'), 'delete') then
        return;
    end if;
    execute 'select max(p.workflow_id), count(*) from (select distinct workflow_id from dbos.datasource_outputs
              where workflow_id > $1 order by 1 limit $2) p' into last_id, removed using after, up_to;
    if removed < up_to then
        removed := 0;
        execute 'with gone as (delete from dbos.datasource_outputs o where o.workflow_id > $1 and not exists (
                  select 1 from dbos.workflow_status s where s.workflow_uuid = o.workflow_id) returning 1)
                 select count(*) from gone' into removed using after;
        last_id := null;
        return;
    end if;
    execute 'with gone as (delete from dbos.datasource_outputs o where o.workflow_id > $1 and o.workflow_id <= $2 and not exists (
              select 1 from dbos.workflow_status s where s.workflow_uuid = o.workflow_id) returning 1)
             select count(*) from gone' into removed using after, last_id;
end $$;

-- A role that owns nothing and cannot log in. What it may is in 0031; it is the only one that may delete.
do $$
begin
    if not exists (select 1 from pg_roles where rolname = 'surefoot_retention') then
        create role surefoot_retention nologin;
    end if;
    execute format('grant surefoot_retention to %I', session_user);
end $$;

do $$
declare t text;
begin
    foreach t in array array['retention_policies', 'retention_passes', 'removals', 'artifact_numbers'] loop
        execute format('alter table surefoot.%I enable row level security', t);
        execute format('alter table surefoot.%I force row level security', t);
        execute format('create policy tenant on surefoot.%I using (tenant = current_setting(''surefoot.tenant'', true))', t);
        execute format('create policy worker on surefoot.%I to surefoot_worker using (true)', t);
        execute format('create policy retention on surefoot.%I to surefoot_retention using (true)', t);
        execute format('grant select on surefoot.%I to surefoot_app, surefoot_worker, surefoot_retention', t);
    end loop;
end $$;
-- The deployment's own pace is no tenant's business to change, and what was removed is told by who removed it.
grant insert, update on surefoot.retention_policies, surefoot.removals to surefoot_worker;
grant insert, update on surefoot.retention_passes to surefoot_retention;
grant insert, update, delete on surefoot.removals, surefoot.artifact_numbers to surefoot_retention;
