-- Two more roles that own nothing and cannot log in: what the API does is bound to a tenant, as it is for surefoot_app;
-- surefoot_admin is for tokens, principals and tenants. What each may is said in 0036.
do $$
begin
    if not exists (select 1 from pg_roles where rolname = 'surefoot_api') then
        create role surefoot_api nologin;
    end if;
    if not exists (select 1 from pg_roles where rolname = 'surefoot_admin') then
        create role surefoot_admin nologin;
    end if;
    execute format('grant surefoot_api, surefoot_admin to %I', session_user);
end $$;

-- An epoch begins when the database is found to be another one than it was: restored, copied, or gone over to a standby.
-- What was committed between stood_at and begun_at may be lost, though it was done. The last three say where the database
-- was; null: nobody could tell, or no worker has been here yet.
create table surefoot.epochs (
    epoch       integer primary key check (epoch > 0),
    tenant      text not null default 'default',
    begun_at    timestamptz not null default clock_timestamp(),
    stood_at    timestamptz not null,
    why         text not null check (length(why) between 1 and 4000),
    begun_by    text not null check (length(begun_by) between 1 and 200),
    system_id   text,
    timeline    integer,
    database_id text,
    check (stood_at <= begun_at)
);
alter table surefoot.epochs enable row level security;
alter table surefoot.epochs force row level security;
create policy tenant on surefoot.epochs using (tenant = current_setting('surefoot.tenant', true));
create policy worker on surefoot.epochs to surefoot_worker using (true);
create policy deployment on surefoot.epochs for select using (tenant = 'default'
    and current_setting('surefoot.tenant', true) <> '');
insert into surefoot.epochs (epoch, stood_at, why, begun_by) values (1, statement_timestamp(), 'the database was made', 'migrate');
grant select on surefoot.epochs to surefoot_app, surefoot_api;
grant select, insert, update (system_id, timeline, database_id) on surefoot.epochs to surefoot_worker;

-- The current one.
create function surefoot.epoch() returns integer
language sql stable set search_path = pg_catalog, pg_temp as $$
    select coalesce(max(e.epoch), 1) from surefoot.epochs e where e.tenant = 'default'
$$;

-- Where this database is, as far as this server lets one ask: its cluster, the timeline of its log, and the numbers there of
-- the database and of our table in it, which is another one once a dump was put back into the same database. A copy of the
-- files of a cluster that was stopped has all of the original. A standby that replays says that it does.
create function surefoot.whereabouts(out system_id text, out timeline integer, out database_id text, out recovering boolean)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    recovering := pg_is_in_recovery();
    begin
        select c.system_identifier into system_id from pg_control_system() c;
    exception when others then system_id := null;
    end;
    begin
        timeline := ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer;
    exception when others then timeline := null;
    end;
    select d.oid || '/' || 'surefoot.epochs'::regclass::oid into database_id from pg_database d where d.datname = current_database();
end $$;

-- A constant default rewrites nothing; from then on a run belongs to the epoch in which it is started.
alter table surefoot.runs add column epoch integer not null default 1;
alter table surefoot.runs alter column epoch set default surefoot.epoch();
