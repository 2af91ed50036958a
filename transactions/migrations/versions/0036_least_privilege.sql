-- What each role may: a login is given surefoot_api and surefoot_admin, or surefoot_app and surefoot_worker.
-- Three small tables, in the order in which authentication locks them.
create policy admin on surefoot.api_tokens to surefoot_admin using (true);
create policy admin on surefoot.principals to surefoot_admin using (true);
create policy admin on surefoot.tenants to surefoot_admin using (true);

-- Who may do what is the administration's: a worker runs tools, and needs no token.
revoke all on surefoot.api_tokens from surefoot_worker;
revoke insert, update on surefoot.tenants, surefoot.principals from surefoot_worker;
revoke update (tokens_since) on surefoot.tenants from surefoot_worker;
grant usage on schema surefoot to surefoot_admin;
grant select, insert, update on surefoot.principals, surefoot.api_tokens to surefoot_admin;
grant select, insert, update (tokens_since) on surefoot.tenants to surefoot_admin;

-- The API sees its tenant's rows, but no token.
grant usage on schema surefoot to surefoot_api;
do $$
declare t text;
begin
    for t in select c.relname from pg_class c where c.relnamespace = 'surefoot'::regnamespace and c.relkind in ('r', 'p', 'v')
             and c.relname not in ('api_tokens', 'schema_version') loop
        execute format('grant select on surefoot.%I to surefoot_api', t);
    end loop;
end $$;
grant select on surefoot.schema_version to surefoot_api;
grant usage, select on all sequences in schema surefoot to surefoot_api;
alter default privileges in schema surefoot grant select on tables to surefoot_api;

-- What people do: start, cancel, release and undo runs, decide, settle, redrive and discard. Only those columns: no
-- generation, no claim, no turn of a model, no result of a run.
grant insert on surefoot.runs, surefoot.segments, surefoot.events, surefoot.run_states, surefoot.actions, surefoot.attempts,
    surefoot.receipts, surefoot.decisions, surefoot.approvals, surefoot.approval_decisions, surefoot.outbox_entries,
    surefoot.outbox_deliveries, surefoot.outbox_keys, surefoot.artifacts, surefoot.staged_objects to surefoot_api;
grant update (state, reason, segment, stalls, event_seq, updated_at, ended_at) on surefoot.runs to surefoot_api;
grant update (state, outcome, turns, settled_at) on surefoot.segments to surefoot_api;
grant update (left_at) on surefoot.run_states to surefoot_api;
grant update (state, reason, failure, result, settled_at, updated_at, attempt, attempts_max, attempt_deadline_at,
              verifications_max, verify_first, revised_to) on surefoot.actions to surefoot_api;
grant update (outcome, detail, finished_at) on surefoot.attempts to surefoot_api;
grant update (state, decided_at, decided_by, decided_role, authenticated, reason) on surefoot.approvals to surefoot_api;
grant update (state, outcome, reason, settled_at, action_id, kind) on surefoot.waits to surefoot_api;
grant update (state, attempts_max, due_at, settled_at, lease_until, detail) on surefoot.outbox_deliveries to surefoot_api;
grant update (last_seq) on surefoot.outbox_keys to surefoot_api;
grant update (ended_at, ended_by) on surefoot.subscriptions to surefoot_api;
grant delete on surefoot.staged_objects to surefoot_api;

-- The engine's rows are the worker's own connection's. Whoever can write them can have any workflow executed: so tools, which
-- run under surefoot_app, and the API cannot. They see the state of a workflow, and none of its contents.
revoke all on all tables in schema dbos from surefoot_app, surefoot_worker;
revoke all on all functions in schema dbos from public, surefoot_app;
grant usage on schema dbos to surefoot_api;
grant select on dbos.workflow_status to surefoot_app, surefoot_api;
grant select, insert, update, delete on all tables in schema dbos to surefoot_worker;
grant usage, select on all sequences in schema dbos to surefoot_worker;
grant execute on all functions in schema dbos to surefoot_worker;
revoke insert, update, delete on dbos.dbos_migrations from surefoot_worker;
alter default privileges in schema dbos revoke all on tables from surefoot_app;
alter default privileges in schema dbos revoke all on functions from surefoot_app;
alter default privileges in schema dbos grant select, insert, update, delete on tables to surefoot_worker;
alter default privileges in schema dbos grant usage, select on sequences to surefoot_worker;

-- The one door from a run to the engine: as the owner, who may write there, and who sees every run, for it has the roles that it
-- has made. Its only argument is a segment: which version that is for (`ask_engine`) is nobody's to say.
revoke all on function surefoot.ask_engine(text, integer, text) from public, surefoot_app, surefoot_worker;
do $$
declare f regprocedure;
begin
    for f in select p.oid from pg_proc p where p.pronamespace = 'surefoot'::regnamespace
              and p.proname in ('enqueue_segment', 'hand_to_engine') loop
        execute format('alter function %s security definer', f);
        execute format('revoke all on function %s from public', f);
        execute format('grant execute on function %s to surefoot_app, surefoot_api, surefoot_worker', f);
    end loop;
end $$;
