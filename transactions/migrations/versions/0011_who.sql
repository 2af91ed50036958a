create table surefoot.tenants (
    tenant     text primary key check (tenant ~ '^[A-Za-z0-9_.-]{1,100}$'),
    created_at timestamptz not null default clock_timestamp(),
    -- Of tenant default, for all: since the first token was made. Before, everyone on this machine may do everything.
    tokens_since timestamptz
);

-- Who may act, and what their roles are: the four of the product, and names of the team's own, such as manager.
create table surefoot.principals (
    tenant      text not null references surefoot.tenants,
    name        text not null check (length(name) between 1 and 200 and name not in ('unauthenticated', 'owner')),
    roles       text[] not null check (cardinality(roles) between 1 and 50 and array_position(roles, null) is null),
    created_at  timestamptz not null default clock_timestamp(),
    changed_at  timestamptz not null default clock_timestamp(),
    changed_by  text not null,
    disabled_at timestamptz,
    primary key (tenant, name)
);

-- Of a token only the hash of its secret is kept. scopes: what it may of its principal's roles; null: all of them.
create table surefoot.api_tokens (
    token_id     text primary key,
    tenant       text not null,
    principal    text not null,
    secret_hash  text not null check (secret_hash ~ '^[0-9a-f]{64}$'),
    scopes       text[] check (cardinality(scopes) between 1 and 50),
    created_at   timestamptz not null default clock_timestamp(),
    created_by   text not null,
    expires_at   timestamptz not null,
    last_used_at timestamptz,
    revoked_at   timestamptz,
    revoked_by   text,
    foreign key (tenant, principal) references surefoot.principals,
    check ((revoked_at is null) = (revoked_by is null))
);
create index api_tokens_principal on surefoot.api_tokens (tenant, principal);

insert into surefoot.tenants (tenant) values ('default');
insert into surefoot.tenants (tenant) select distinct r.tenant from surefoot.runs r where r.tenant <> 'default';

do $$
declare t text;
begin
    foreach t in array array['tenants', 'principals', 'api_tokens'] loop
        execute format('alter table surefoot.%I enable row level security', t);
        execute format('alter table surefoot.%I force row level security', t);
        execute format('create policy tenant on surefoot.%I using (tenant = current_setting(''surefoot.tenant'', true))', t);
        execute format('create policy worker on surefoot.%I to surefoot_worker using (true)', t);
    end loop;
end $$;
-- Tools run under surefoot_app: they see who may do what, and cannot change it or look at tokens.
grant select on surefoot.tenants, surefoot.principals to surefoot_app;
grant select, insert, update (tokens_since) on surefoot.tenants to surefoot_worker;
grant select, insert, update on surefoot.principals, surefoot.api_tokens to surefoot_worker;


-- What belongs to the deployment is of tenant default, and every tenant sees it.
do $$
declare t text;
begin
    foreach t in array array['tenants', 'agents', 'workers', 'subscriptions', 'consumer_limits'] loop
        execute format('create policy deployment on surefoot.%I for select using (tenant = ''default''
                        and current_setting(''surefoot.tenant'', true) <> '''')', t);
    end loop;
end $$;

-- A subscription belongs to the deployment: its consumers get the entries of every tenant.
create or replace function surefoot.tell_run_state() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_topic text := 'run.' || case new.state when 'completed' then 'finished' else new.state end;
    v_caller text := coalesce(current_setting('surefoot.tenant', true), '');
    v_run surefoot.runs%rowtype;
    v_entry text;
    v_too_large boolean;
begin
    perform set_config('surefoot.tenant', new.tenant, true);
    if exists (select 1 from surefoot.subscriptions s
                where s.tenant = 'default' and s.topic = v_topic and s.ended_at is null) then
        select * into v_run from surefoot.runs r where r.run_id = new.run_id;
        v_entry := new.run_id || '#' || v_topic || ':' || v_run.event_seq;
        v_too_large := coalesce(octet_length(v_run.output::text) > 262144, false);
        if v_run.state = new.state then
            insert into surefoot.outbox_entries (entry_id, tenant, run_id, topic, key, key_seq, payload)
            values (v_entry, new.tenant, new.run_id, v_topic, new.run_id, v_run.event_seq, jsonb_build_object(
                'run_id', v_run.run_id, 'agent', v_run.agent, 'state', v_run.state, 'reason', left(v_run.reason, 4000),
                'output', case when not v_too_large then v_run.output end, 'output_too_large', v_too_large,
                'idempotency_key', v_run.idempotency_key, 'event', v_run.event_seq))
            on conflict do nothing;
            if found then
                insert into surefoot.outbox_deliveries
                    (entry_id, consumer, tenant, state, attempts_max, passes_dead, of_topic, of_key, of_seq)
                select v_entry, s.consumer, new.tenant, 'pending', 20, s.passes_dead, v_topic, new.run_id, v_run.event_seq
                  from surefoot.subscriptions s where s.tenant = 'default' and s.topic = v_topic and s.ended_at is null;
            end if;
        end if;
    end if;
    perform set_config('surefoot.tenant', v_caller, true);
    return null;
end $$;

create or replace view surefoot.outbox_open with (security_invoker = true) as
with opened as (
    select d.tenant, d.entry_id, d.consumer, d.state, d.attempt, d.attempts_max, d.due_at, d.settled_at, d.worker_id,
           d.lease_until, d.detail, e.topic, e.key, e.key_seq, e.run_id, e.action_id, e.created_at as put_at, l.paused_until, l.paused_why,
           case when e.key is not null then first_value(d.entry_id) over same_key end as head_entry_id,
           case when e.key is not null then first_value(d.state) over same_key end as head_state
      from surefoot.outbox_deliveries d join surefoot.outbox_entries e using (entry_id)
      left join surefoot.actions a on d.consumer = 'effect' and a.action_id = e.action_id
      left join surefoot.consumer_limits l on l.tenant = 'default' and l.consumer = d.consumer and l.paused_until > clock_timestamp()
     where d.state in ('parked', 'pending', 'claimed') or (d.state = 'dead' and a.settled_at is null)
    window same_key as (partition by d.tenant, e.topic, d.consumer, e.key
                            order by d.state = 'dead' and d.passes_dead, e.key_seq)),  -- a dead one that is passed is no head
judged as (
    select o.*,
           case when o.state = 'pending' and o.consumer <> 'effect'
                     and exists (select 1 from surefoot.workers w where w.state = 'live')
                     and not exists (select 1 from surefoot.workers w where w.state = 'live'
                                        and (w.consumers is null or o.consumer = any(w.consumers))) then 'undeliverable'
                when o.state = 'pending' and o.head_entry_id <> o.entry_id and o.head_state = 'dead' then 'blocked'
                else o.state end as standing
      from opened o)
select j.tenant, j.entry_id, j.consumer, j.topic, j.key, j.key_seq, j.run_id, j.action_id, j.state, j.standing,
       j.attempt, j.attempts_max, j.due_at, j.put_at, coalesce(j.settled_at, j.put_at) as since,
       case j.standing
            when 'undeliverable' then 'no live worker has the consumer ' || j.consumer
            when 'blocked' then 'entry ' || j.head_entry_id || ' of the same key is dead'
            when 'parked' then 'its call waits for the calls before it, or for a decision'
            when 'claimed' then 'worker ' || j.worker_id || ' delivers it, attempt ' || j.attempt || ', its claim lasts until '
                                || to_char(j.lease_until at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"')
            when 'dead' then coalesce(j.detail, 'no reason was recorded')
            else case when j.head_entry_id <> j.entry_id then 'it follows entry ' || j.head_entry_id || ' of the same key'
                      when j.paused_until is not null then 'nothing goes to ' || j.consumer || ' until '
                           || to_char(j.paused_until at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"') || ', which it asked for: '
                           || j.paused_why
                      when j.attempt = 0 and j.detail is null and j.due_at > clock_timestamp() then 'it was put to go later: see due_at'
                      else coalesce(j.detail, 'it was not tried yet') end end as why,
       case when j.consumer = 'effect' then 'it belongs to its action: see `surefoot actions`'
            when j.standing = 'undeliverable' then 'start a worker that has this consumer; or discard it with a reason'
            when j.standing = 'blocked' then 'redrive or discard the entry before it'
            when j.standing = 'dead' and exists (select 1 from surefoot.inbox i
                                                  where i.consumer = j.consumer and i.entry_id = j.entry_id)
                 then 'redrive it: its consumer has taken it, so it is closed without being sent again'
            when j.standing = 'dead' then 'put the cause right and redrive it; or discard it with a reason'
            when j.standing = 'pending' and j.due_at < clock_timestamp() - interval '1 minute'
                 and not exists (select 1 from surefoot.workers w where w.state = 'live')
                 then 'start a worker: none is live that can be seen from here'
            else 'nothing: it goes on by itself' end as what_to_do
  from judged j;

-- Starts a run in the caller's own transaction, from any language. Returns its id; the same key and input is the
-- same run (errcode SF001: another input; SF002: unknown agent; SF003: no such tenant, or a transaction of another one).
create or replace function surefoot.start_run(
    agent text, input jsonb, idempotency_key text default null, tenant text default 'default',
    principal text default 'unauthenticated'
) returns text language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_hash text := encode(sha256(convert_to(agent || E'\n' || input::text, 'UTF8')), 'hex');
    v_run text;
    v_seen text;
    v_caller text := coalesce(current_setting('surefoot.tenant', true), '');
begin
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
    insert into surefoot.runs as r (run_id, tenant, agent, principal, input, request_hash, idempotency_key, event_seq)
    values (gen_random_uuid()::text, tenant, agent, principal, input, v_hash, idempotency_key, 1)
    on conflict do nothing returning r.run_id into v_run;
    if v_run is null then
        select r.run_id, r.request_hash into v_run, v_seen from surefoot.runs r
        where r.tenant = start_run.tenant and r.agent = start_run.agent
          and r.idempotency_key = start_run.idempotency_key;
        if v_seen is distinct from v_hash then
            raise exception 'key "%" already started run % with another input: use a new key, or send the first input',
                idempotency_key, v_run using errcode = 'SF001';
        end if;
        perform set_config('surefoot.tenant', v_caller, true);
        return v_run;
    end if;
    insert into surefoot.events (run_id, seq, tenant, kind, data, generation)
    values (v_run, 1, tenant, 'run.queued', jsonb_build_object('agent', agent), 0);
    insert into surefoot.segments (run_id, n, tenant) values (v_run, 0, tenant);
    perform surefoot.enqueue_segment(v_run, 0);
    perform set_config('surefoot.tenant', v_caller, true);
    return v_run;
end $$;
