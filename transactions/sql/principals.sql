-- name: get
select * from surefoot.principals where tenant = :tenant and name = :name

-- name: page
select p.tenant, p.name, p.roles, p.created_at, p.changed_at, p.changed_by, p.disabled_at
  from surefoot.principals p where p.tenant = :tenant order by p.name

-- name: put
insert into surefoot.principals (tenant, name, roles, changed_by) values (:tenant, :name, :roles, :by)
on conflict (tenant, name) do update
   set roles = excluded.roles, changed_at = clock_timestamp(), changed_by = excluded.changed_by

-- name: disable
update surefoot.principals set disabled_at = coalesce(disabled_at, clock_timestamp()), changed_at = clock_timestamp(), changed_by = :by
 where tenant = :tenant and name = :name returning name

-- name: enable
update surefoot.principals set disabled_at = null, changed_at = clock_timestamp(), changed_by = :by
 where tenant = :tenant and name = :name returning name

-- name: tokens_since
select tokens_since from surefoot.tenants where tenant = 'default'

-- name: is_owner
select pg_has_role(session_user, n.nspowner, 'member') as is_owner from pg_namespace n where n.nspname = 'surefoot'

-- name: new_tenant
insert into surefoot.tenants (tenant) values (:tenant) on conflict (tenant) do nothing returning tenant

-- name: tenant
select tenant, created_at from surefoot.tenants where tenant = :tenant

-- name: tenants
select t.tenant, t.created_at, (select count(*) from surefoot.principals p where p.tenant = t.tenant) as principals
  from surefoot.tenants t order by t.tenant
