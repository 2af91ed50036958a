-- name: record
insert into surefoot.decisions (action_id, attempt, tenant, outcome, decided_by, authenticated, reason, result, evidence, generation)
select a.action_id, a.attempt, a.tenant, :outcome, :decided_by, :authenticated, cast(:reason as text),
       cast(:result as jsonb), cast(:evidence as jsonb), r.generation
  from surefoot.actions a join surefoot.runs r using (run_id) where a.action_id = :action_id

-- name: of_action
select * from surefoot.decisions where action_id = :action_id order by attempt

-- name: unknown
select * from surefoot.unknown_actions where tenant = :tenant and cardinality(can) > 0 order by since limit :limit

-- name: unknown_of_action
select * from surefoot.unknown_actions where action_id = :action_id

-- name: contradictions
select * from surefoot.contradictions where tenant = :tenant order by since desc limit :limit

-- name: contradictions_of_action
select * from surefoot.contradictions where action_id = :action_id order by receipt_id

-- name: action
select a.*, r.state as run_state from surefoot.actions a join surefoot.runs r using (run_id) where a.action_id = :action_id

-- name: attempts_of_action
select * from surefoot.attempts where action_id = :action_id order by attempt

-- name: verifications_of_action
select * from surefoot.verifications where action_id = :action_id order by n

-- name: receipts_of_action
select * from surefoot.receipts where action_id = :action_id order by receipt_id
