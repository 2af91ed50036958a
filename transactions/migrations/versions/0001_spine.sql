-- The spine: everything that commits. One row's tenant decides who sees it (policies at the end).

create table surefoot.agents (
    tenant       text not null default 'default',
    name         text not null,
    version      text not null,
    input_schema jsonb not null,
    seen_at      timestamptz not null default clock_timestamp(),
    primary key (tenant, name)
);

create table surefoot.workers (
    worker_id      text primary key,
    tenant         text not null default 'default',
    version        text not null,
    host           text not null,
    machine        text not null,
    pid            integer not null check (pid > 0),
    pid_start      text not null,
    state          text not null default 'live' check (state in ('live', 'released', 'dead')),
    lease_s        double precision not null check (lease_s > 0),
    lease_until    timestamptz not null,
    started_at     timestamptz not null default clock_timestamp(),
    ended_at       timestamptz,
    reason         text,
    check ((state = 'live') = (ended_at is null))
);
create index workers_live on surefoot.workers (lease_until) where state = 'live';

create table surefoot.runs (
    run_id          text primary key,
    tenant          text not null,
    agent           text not null,
    agent_version   text,
    principal       text not null,
    input           jsonb not null check (octet_length(input::text) <= 1048576),
    request_hash    text not null,
    idempotency_key text check (length(idempotency_key) between 1 and 255),
    state           text not null default 'queued' check (state in
                    ('queued', 'running', 'waiting', 'held', 'cancelling', 'completed', 'failed', 'cancelled')),
    reason          text,
    segment         integer not null default 0 check (segment >= 0),
    generation      bigint not null default 0,
    event_seq       bigint not null default 0,
    turns           integer not null default 0,
    stalls          integer not null default 0,
    steps_seen      integer not null default 0,
    state_version   integer not null default 1,
    usage           jsonb not null default '{}',
    output          jsonb,
    deadline_at     timestamptz,
    created_at      timestamptz not null default clock_timestamp(),
    updated_at      timestamptz not null default clock_timestamp(),
    ended_at        timestamptz,
    unique (tenant, agent, idempotency_key),
    check ((state in ('completed', 'failed', 'cancelled')) = (ended_at is not null)),
    check (state <> 'completed' or output is not null),
    check (state not in ('held', 'failed', 'cancelled') or reason is not null)
);
create index runs_open on surefoot.runs (updated_at) where ended_at is null;

create table surefoot.segments (
    run_id     text not null references surefoot.runs,
    n          integer not null check (n >= 0),
    tenant     text not null,
    state      text not null default 'open' check (state in ('open', 'settled')),
    outcome    text,
    frozen     jsonb,
    turns      integer,
    executions integer not null default 0,
    created_at timestamptz not null default clock_timestamp(),
    settled_at timestamptz,
    primary key (run_id, n),
    check ((state = 'settled') = (settled_at is not null and outcome is not null and turns is not null))
);
create unique index segments_one_open on surefoot.segments (run_id) where state = 'open';

create table surefoot.model_messages (
    run_id     text not null references surefoot.runs,
    seq        integer not null check (seq >= 0),
    tenant     text not null,
    segment    integer not null,
    message    jsonb not null,
    created_at timestamptz not null default clock_timestamp(),
    primary key (run_id, seq)
);

create table surefoot.model_calls (
    run_id        text not null references surefoot.runs,
    turn          integer not null check (turn > 0),
    tenant        text not null,
    segment       integer not null,
    model         text not null,
    input_tokens  bigint not null,
    output_tokens bigint not null,
    generation    bigint not null,
    worker_id     text not null,
    at            timestamptz not null default clock_timestamp(),
    primary key (run_id, turn)
);

-- One row for each execution of a step and one for each replay of it.
create table surefoot.steps (
    run_id      text not null references surefoot.runs,
    segment     integer not null,
    position    integer not null,
    generation  bigint not null,
    tenant      text not null,
    name        text not null,
    how         text not null check (how in ('ran', 'replayed', 'reused', 'verified', 'deferred')),
    worker_id   text not null,
    started_at  timestamptz not null,
    finished_at timestamptz not null,
    primary key (run_id, segment, position, generation)
);

create table surefoot.actions (
    action_id       text primary key,
    tenant          text not null,
    run_id          text not null references surefoot.runs,
    segment         integer not null,
    turn            integer not null,
    position        integer not null,
    call_id         text not null,
    agent           text not null,
    tool            text not null,
    kind            text not null check (kind in ('transaction', 'effect')),
    safety          text not null check (safety in ('transaction', 'idempotent', 'verify', 'at_most_once')),
    request         jsonb not null check (octet_length(request::text) <= 1048576),
    request_hash    text not null,
    gated           boolean not null,
    state           text not null default 'PREPARED' check (state in
                    ('PREPARED', 'IN_FLIGHT', 'SUCCEEDED', 'FAILED', 'UNKNOWN', 'CANCELLED')),
    attempt         integer not null default 0,
    attempts_max    integer not null check (attempts_max > 0),
    attempt_s       double precision not null check (attempt_s > 0),
    verifications   integer not null default 0,
    claim_generation bigint,
    claim_worker    text,
    attempt_deadline_at timestamptz,
    result          jsonb check (octet_length(result::text) <= 1048576),
    reason          text,
    created_at      timestamptz not null default clock_timestamp(),
    updated_at      timestamptz not null default clock_timestamp(),
    settled_at      timestamptz,
    check ((state in ('SUCCEEDED', 'FAILED', 'CANCELLED')) = (settled_at is not null)),
    check (state not in ('IN_FLIGHT', 'UNKNOWN') or attempt > 0),
    check (state not in ('FAILED', 'CANCELLED') or reason is not null),
    check (kind <> 'transaction' or state in ('PREPARED', 'SUCCEEDED', 'CANCELLED'))
);
create index actions_run on surefoot.actions (run_id, turn, position);
create index actions_unsettled on surefoot.actions (updated_at) where state in ('IN_FLIGHT', 'UNKNOWN');

create table surefoot.attempts (
    action_id   text not null references surefoot.actions,
    attempt     integer not null check (attempt > 0),
    tenant      text not null,
    generation  bigint not null,
    worker_id   text not null,
    claimed_at  timestamptz not null default clock_timestamp(),
    deadline_at timestamptz not null,
    outcome     text check (outcome in ('answered', 'not_sent', 'unknown', 'refused')),
    detail      text,
    finished_at timestamptz,
    primary key (action_id, attempt),
    check ((outcome is null) = (finished_at is null))
);

create table surefoot.verifications (
    action_id  text not null references surefoot.actions,
    n          integer not null check (n > 0),
    tenant     text not null,
    attempt    integer not null,
    verdict    text not null check (verdict in ('found', 'absent', 'unsure')),
    evidence   jsonb,
    generation bigint not null,
    worker_id  text not null,
    at         timestamptz not null default clock_timestamp(),
    primary key (action_id, n)
);

-- Append-only: a receipt that is not the first one of its action is a contradiction, shown and never hidden.
create table surefoot.receipts (
    receipt_id    bigint generated always as identity primary key,
    action_id     text not null references surefoot.actions,
    attempt       integer not null,
    tenant        text not null,
    source        text not null check (source in ('answer', 'verification', 'transaction')),
    result        jsonb not null,
    contradiction text,
    generation    bigint not null,
    worker_id     text not null,
    at            timestamptz not null default clock_timestamp()
);
create index receipts_action on surefoot.receipts (action_id);

create table surefoot.approvals (
    approval_id   text primary key,
    tenant        text not null,
    run_id        text not null references surefoot.runs,
    action_id     text not null unique references surefoot.actions,
    tool          text not null,
    arguments     jsonb not null,
    binding       jsonb not null,
    binding_hash  text not null,
    approver      text not null check (approver like 'role:_%' or approver like 'user:_%'),
    state         text not null default 'pending' check (state in
                  ('pending', 'approved', 'rejected', 'expired', 'void')),
    expires_at    timestamptz not null,
    requested_at  timestamptz not null default clock_timestamp(),
    decided_at    timestamptz,
    decided_by    text,
    decided_role  text,
    authenticated boolean,
    reason        text check (length(reason) <= 4000),
    check ((state = 'pending') = (decided_at is null)),
    check (state not in ('approved', 'rejected') or (decided_by is not null and authenticated is not null))
);
create index approvals_run on surefoot.approvals (run_id);
create index approvals_pending on surefoot.approvals (expires_at) where state = 'pending';

create table surefoot.waits (
    wait_id    text not null,
    run_id     text not null references surefoot.runs,
    segment    integer not null,
    tenant     text not null,
    kind       text not null check (kind in
               ('approval', 'follows', 'delivery', 'verification', 'external_job', 'timer', 'budget')),
    action_id  text references surefoot.actions,
    call_id    text not null,
    position   integer not null,
    state      text not null check (state in ('open', 'settled')),
    outcome    text check (outcome in ('go', 'denied')),
    reason     text,
    opened_at  timestamptz not null default clock_timestamp(),
    settled_at timestamptz,
    primary key (run_id, segment, wait_id),
    check ((state = 'settled') = (settled_at is not null and outcome is not null)),
    check (outcome is distinct from 'denied' or reason is not null)
);
create index waits_action on surefoot.waits (action_id) where state = 'open';

create table surefoot.artifacts (
    tenant     text not null,
    name       text not null check (length(name) between 1 and 200),
    version    integer not null check (version > 0),
    run_id     text not null references surefoot.runs,
    action_id  text not null references surefoot.actions,
    media_type text not null,
    size_bytes bigint not null,
    sha256     text not null,
    content    bytea not null,
    created_at timestamptz not null default clock_timestamp(),
    primary key (tenant, name, version),
    -- Verified by the database over the bytes it stores, so a reference to other bytes cannot exist.
    check (size_bytes = octet_length(content) and size_bytes <= 67108864),
    check (sha256 = encode(sha256(content), 'hex'))
);

create table surefoot.outbox_keys (
    tenant   text not null,
    topic    text not null,
    key      text not null,
    last_seq bigint not null,
    primary key (tenant, topic, key)
);

create table surefoot.outbox_entries (
    entry_id   text primary key,
    tenant     text not null,
    run_id     text references surefoot.runs,
    action_id  text references surefoot.actions,
    topic      text not null,
    key        text,
    key_seq    bigint,
    payload    jsonb not null check (octet_length(payload::text) <= 1048576),
    created_at timestamptz not null default clock_timestamp(),
    check ((key is null) = (key_seq is null)),
    unique (tenant, topic, key, key_seq)
);
create index outbox_entries_run on surefoot.outbox_entries (run_id) where run_id is not null;

create table surefoot.outbox_deliveries (
    entry_id     text not null references surefoot.outbox_entries,
    consumer     text not null,
    tenant       text not null,
    state        text not null check (state in ('parked', 'pending', 'claimed', 'delivered', 'dead', 'discarded')),
    attempt      integer not null default 0,
    attempts_max integer not null check (attempts_max > 0),
    worker_id    text,
    lease_until  timestamptz,
    due_at       timestamptz not null default clock_timestamp(),
    detail       text,
    receipt      jsonb,
    created_at   timestamptz not null default clock_timestamp(),
    settled_at   timestamptz,
    primary key (entry_id, consumer),
    check ((state = 'claimed') = (lease_until is not null)),
    check ((state in ('delivered', 'dead', 'discarded')) = (settled_at is not null))
);
create index outbox_deliveries_due on surefoot.outbox_deliveries (consumer, due_at) where state = 'pending';
create index outbox_deliveries_claimed on surefoot.outbox_deliveries (lease_until) where state = 'claimed';

-- What a consumer has taken: its effect and this row commit together.
create table surefoot.inbox (
    consumer text not null,
    entry_id text not null references surefoot.outbox_entries,
    tenant   text not null,
    taken_at timestamptz not null default clock_timestamp(),
    result   jsonb,
    primary key (consumer, entry_id)
);

create table surefoot.events (
    run_id     text not null references surefoot.runs,
    seq        bigint not null check (seq > 0),
    tenant     text not null,
    kind       text not null,
    data       jsonb not null,
    generation bigint not null,
    worker_id  text,
    at         timestamptz not null default clock_timestamp(),
    primary key (run_id, seq)
);

-- Starts a run in the caller's own transaction, from any language. Returns its id; the same key and input is the
-- same run (errcode SF001: another input; SF002: unknown agent).
create function surefoot.start_run(
    agent text, input jsonb, idempotency_key text default null, tenant text default 'default',
    principal text default 'unauthenticated'
) returns text language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_hash text := encode(sha256(convert_to(agent || E'\n' || input::text, 'UTF8')), 'hex');
    v_run text;
    v_seen text;
    v_caller text := coalesce(current_setting('surefoot.tenant', true), '');
begin
    perform set_config('surefoot.tenant', tenant, true);
    if not exists (select 1 from surefoot.agents a where a.tenant = start_run.tenant and a.name = agent) then
        raise exception 'no agent named "%": start a worker that serves it, or choose one of: %', agent,
            coalesce((select string_agg(a.name, ', ' order by a.name) from surefoot.agents a where a.tenant = start_run.tenant), '(none)')
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

-- The one place that asks the engine for an execution. No version is named: the newest one that is live takes it.
create function surefoot.enqueue_segment(run_id text, n integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform dbos.enqueue_workflow(
        workflow_name => 'surefoot.segment', queue_name => 'surefoot',
        positional_args => array[to_json(run_id), to_json(n)],
        workflow_id => run_id || ':' || n);
end $$;
