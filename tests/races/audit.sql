-- Who moved what from where to where, in the order in which the rows were changed. Only the tests look at it.
create schema audit;
create table audit.moves (
    id bigint generated always as identity primary key, thing text not null, key text not null,
    old text, new text not null, attempt bigint, worker_id text);
create index on audit.moves (key text_pattern_ops);
create index on dbos.workflow_status (workflow_uuid text_pattern_ops);
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
    values (tg_table_name, n ->> 'action_id', coalesce(n ->> 'source', n ->> 'verdict', n ->> 'outcome'), (n ->> 'attempt')::bigint, n ->> 'worker_id');
    return null;
end $$;
create trigger audit after insert on surefoot.receipts for each row execute function audit.log_fact();
create trigger audit after insert on surefoot.decisions for each row execute function audit.log_fact();
create trigger audit after insert on surefoot.verifications for each row execute function audit.log_fact();
create trigger audit after insert or update on surefoot.runs for each row execute function audit.log('run_id', 'segment');
create trigger audit after insert or update on surefoot.actions for each row execute function audit.log('action_id', 'attempt');
create trigger audit after insert or update on surefoot.approvals for each row execute function audit.log('approval_id', 'none');
create trigger audit after insert or update on surefoot.outbox_deliveries for each row execute function audit.log('entry_id', 'attempt');
create trigger audit after insert or update on surefoot.workers for each row execute function audit.log('worker_id', 'none');
-- audit.copy(old, new): one more run in the state of one that the product's own functions made, copied row by row.
alter table surefoot.runs disable trigger keep_first_state;
alter table surefoot.segments disable trigger keep_first_state;
alter table surefoot.actions disable trigger keep_first_state;
alter table surefoot.approvals disable trigger keep_first_state;
alter table surefoot.outbox_deliveries disable trigger keep_first_state;
do $do$
declare body text := ''; t text; which text;
begin
    foreach t in array array[
        'surefoot.runs/run_id = old', 'surefoot.segments/run_id = old', 'surefoot.events/run_id = old',
        'surefoot.actions/run_id = old', 'surefoot.approvals/run_id = old', 'surefoot.outbox_entries/run_id = old',
        'surefoot.attempts/action_id like old || $$/%$$', 'surefoot.outbox_deliveries/entry_id like old || $$/%$$',
        'surefoot.waits/run_id = old', 'dbos.workflow_status/workflow_uuid like old || $$:%$$',
        'dbos.workflow_input/workflow_uuid like old || $$:%$$'] loop
        which := substr(t, strpos(t, '/') + 1);
        t := split_part(t, '/', 1);
        body := body || (
            select format('insert into %s (%s) select %s from %s where %s; ', t,
                          string_agg(quote_ident(attname), ', ' order by attnum),
                          string_agg(case atttypid::regtype::text
                                     when 'text' then format('replace(%I, old, new)', attname)
                                     when 'jsonb' then format('replace(%I::text, old, new)::jsonb', attname)
                                     else quote_ident(attname) end, ', ' order by attnum), t, which)
              from pg_attribute where attrelid = t::regclass and attnum > 0 and not attisdropped);
    end loop;
    execute format('create function audit.copy(old text, new text) returns void language plpgsql'
                   ' security definer set search_path = pg_catalog as $f$ begin %s end $f$', body);
end $do$;
create index on surefoot.attempts (action_id text_pattern_ops);
create index on surefoot.outbox_deliveries (entry_id text_pattern_ops);
create index on dbos.workflow_input (workflow_uuid text_pattern_ops);
