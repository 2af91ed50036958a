-- Who moved what from where to where, in the order in which the rows were changed. Only the tests look at it.
create schema audit;
create table audit.moves (
    id bigint generated always as identity primary key, thing text not null, key text not null,
    old text, new text not null, attempt bigint, worker_id text);
create index on audit.moves (key text_pattern_ops);
create index on dbos.workflow_status (workflow_uuid text_pattern_ops);
create index on surefoot.outbox_entries (run_id);
create index on surefoot.approvals (run_id);
create function audit.log() returns trigger language plpgsql security definer set search_path = pg_catalog as $$
declare o jsonb := case when tg_op = 'UPDATE' then to_jsonb(old) end; n jsonb := to_jsonb(new);
begin
    insert into audit.moves (thing, key, old, new, attempt, worker_id)
    values (tg_table_name,
            case tg_table_name when 'outbox_deliveries' then (n ->> 'entry_id') || '>' || (n ->> 'consumer') else n ->> tg_argv[0] end,
            o ->> 'state', n ->> 'state', (n ->> tg_argv[1])::bigint, coalesce(n ->> 'worker_id', n ->> 'claim_worker'));
    return null;
end $$;
create function audit.log_fact() returns trigger language plpgsql security definer set search_path = pg_catalog as $$
declare n jsonb := to_jsonb(new);
begin
    insert into audit.moves (thing, key, new, attempt, worker_id)
    values (tg_table_name, n ->> 'action_id', coalesce(n ->> 'source', n ->> 'verdict'), (n ->> 'attempt')::bigint, n ->> 'worker_id');
    return null;
end $$;
create trigger audit after insert on surefoot.receipts for each row execute function audit.log_fact();
create trigger audit after insert on surefoot.verifications for each row execute function audit.log_fact();
create trigger audit after insert or update on surefoot.runs for each row execute function audit.log('run_id', 'segment');
create trigger audit after insert or update on surefoot.actions for each row execute function audit.log('action_id', 'attempt');
create trigger audit after insert or update on surefoot.approvals for each row execute function audit.log('approval_id', 'none');
create trigger audit after insert or update on surefoot.outbox_deliveries for each row execute function audit.log('entry_id', 'attempt');
create trigger audit after insert or update on surefoot.workers for each row execute function audit.log('worker_id', 'none');
