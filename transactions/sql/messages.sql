-- name: append
insert into surefoot.model_messages (run_id, seq, tenant, segment, message)
select :run_id, :first_seq + ordinality - 1, :tenant, :segment, value
  from jsonb_array_elements(cast(:messages as jsonb)) with ordinality
on conflict (run_id, seq) do nothing

-- name: count
select count(*) as stored from surefoot.model_messages where run_id = :run_id

-- name: before
select message from surefoot.model_messages where run_id = :run_id and seq < :cut order by seq

-- name: record_call
insert into surefoot.model_calls (run_id, turn, tenant, segment, model, input_tokens, output_tokens, generation, worker_id)
values (:run_id, :turn, :tenant, :segment, :model, :input_tokens, :output_tokens, :generation, :worker_id)
on conflict (run_id, turn) do nothing
