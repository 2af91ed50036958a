-- name: insert
insert into surefoot.api_tokens (token_id, tenant, principal, secret_hash, scopes, created_by, expires_at)
values (:token_id, :tenant, :principal, :secret_hash, cast(:scopes as text[]), :by, clock_timestamp() + make_interval(secs => :expires_s))
returning expires_at

-- name: close_the_deployment
update surefoot.tenants set tokens_since = clock_timestamp() where tenant = 'default' and tokens_since is null

-- name: with_principal
select t.tenant, t.principal, t.secret_hash, t.scopes, t.expires_at, t.revoked_at, p.roles, p.disabled_at,
       t.expires_at <= clock_timestamp() as is_over,
       coalesce(t.last_used_at < clock_timestamp() - make_interval(secs => :every_s), true) as use_is_stale
  from surefoot.api_tokens t join surefoot.principals p on p.tenant = t.tenant and p.name = t.principal
 where t.token_id = :token_id

-- name: touch
update surefoot.api_tokens set last_used_at = clock_timestamp() where token_id = :token_id

-- name: page
select t.token_id, t.principal, t.scopes, t.created_at, t.created_by, t.expires_at, t.last_used_at, t.revoked_at, t.revoked_by,
       case when t.revoked_at is not null then 'revoked' when t.expires_at <= clock_timestamp() then 'expired'
            when p.disabled_at is not null then 'disabled' else 'valid' end as standing
  from surefoot.api_tokens t join surefoot.principals p on p.tenant = t.tenant and p.name = t.principal
 where t.tenant = :tenant order by t.created_at, t.token_id

-- name: revoke
update surefoot.api_tokens set revoked_at = clock_timestamp(), revoked_by = :by
 where tenant = :tenant and token_id = :token_id and revoked_at is null returning principal

-- name: get
select token_id, revoked_at, revoked_by from surefoot.api_tokens where tenant = :tenant and token_id = :token_id
