-- name: run
select tenant from surefoot.runs where run_id = :id

-- name: approval
select tenant from surefoot.approvals where approval_id = :id

-- name: action
select tenant from surefoot.actions where action_id = :id

-- name: entry
select tenant from surefoot.outbox_entries where entry_id = :id
