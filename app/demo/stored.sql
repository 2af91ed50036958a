-- How many rows the runs `:runs` have in the database, the engine's included, and how many bytes.
with parts (n, size) as (
    select count(*), sum(pg_column_size(t.*)) from surefoot.runs t where run_id = any(:runs)
    union all
    select count(*), sum(pg_column_size(t.*)) from surefoot.segments t where run_id = any(:runs)
    union all
    select count(*), sum(pg_column_size(t.*)) from surefoot.model_messages t where run_id = any(:runs)
    union all
    select count(*), sum(pg_column_size(t.*)) from surefoot.model_calls t where run_id = any(:runs)
    union all
    select count(*), sum(pg_column_size(t.*)) from surefoot.steps t where run_id = any(:runs)
    union all
    select count(*), sum(pg_column_size(t.*)) from surefoot.actions t where run_id = any(:runs)
    union all
    select count(*), sum(pg_column_size(t.*)) from surefoot.attempts t where split_part(action_id, '/', 1) = any(:runs)
    union all
    select count(*), sum(pg_column_size(t.*)) from surefoot.verifications t where split_part(action_id, '/', 1) = any(:runs)
    union all
    select count(*), sum(pg_column_size(t.*)) from surefoot.receipts t where split_part(action_id, '/', 1) = any(:runs)
    union all
    select count(*), sum(pg_column_size(t.*)) from surefoot.approvals t where run_id = any(:runs)
    union all
    select count(*), sum(pg_column_size(t.*)) from surefoot.waits t where run_id = any(:runs)
    union all
    select count(*), sum(pg_column_size(t.*)) from surefoot.artifacts t where run_id = any(:runs)
    union all
    select count(*), sum(pg_column_size(t.*)) from surefoot.outbox_entries t where run_id = any(:runs)
    union all
    select count(*), sum(pg_column_size(t.*)) from surefoot.outbox_deliveries t where split_part(entry_id, '/', 1) = any(:runs)
    union all
    select count(*), sum(pg_column_size(t.*)) from surefoot.events t where run_id = any(:runs)
    union all
    select count(*), sum(pg_column_size(t.*)) from dbos.workflow_status t where split_part(workflow_uuid, ':', 1) = any(:runs)
    union all
    select count(*), sum(pg_column_size(t.*)) from dbos.operation_outputs t where split_part(workflow_uuid, ':', 1) = any(:runs)
)
select sum(n)::bigint as n, coalesce(sum(size), 0)::bigint as size from parts
