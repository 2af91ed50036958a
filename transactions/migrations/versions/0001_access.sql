-- Two roles that own nothing. The application's role sees one tenant's rows, the worker's loops see all.
do $$
begin
    if not exists (select 1 from pg_roles where rolname = 'surefoot_app') then
        create role surefoot_app nologin;
    end if;
    if not exists (select 1 from pg_roles where rolname = 'surefoot_worker') then
        create role surefoot_worker nologin;
    end if;
    execute format('grant surefoot_app, surefoot_worker to %I', session_user);
end $$;

grant usage on schema surefoot, dbos to surefoot_app, surefoot_worker;
grant select, insert, update on all tables in schema surefoot to surefoot_app, surefoot_worker;
revoke insert, update on surefoot.schema_version from surefoot_app, surefoot_worker;
revoke update on surefoot.receipts, surefoot.events, surefoot.inbox, surefoot.artifacts, surefoot.verifications
    from surefoot_app, surefoot_worker;
grant execute on all functions in schema surefoot, dbos to surefoot_app, surefoot_worker;
grant select, insert, update on all tables in schema dbos to surefoot_app, surefoot_worker;
alter default privileges in schema dbos grant execute on functions to surefoot_app, surefoot_worker;
alter default privileges in schema dbos grant select, insert, update on tables to surefoot_app, surefoot_worker;

do $$
declare t text;
begin
    for t in select c.relname from pg_class c where c.relnamespace = 'surefoot'::regnamespace and c.relkind = 'r'
             and exists (select 1 from pg_attribute a where a.attrelid = c.oid and a.attname = 'tenant') loop
        execute format('alter table surefoot.%I enable row level security', t);
        execute format('alter table surefoot.%I force row level security', t);
        execute format('create policy tenant on surefoot.%I using (tenant = current_setting(''surefoot.tenant'', true))', t);
        execute format('create policy worker on surefoot.%I to surefoot_worker using (true)', t);
    end loop;
end $$;
