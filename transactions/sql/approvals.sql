-- name: request_if_new
insert into surefoot.approvals (approval_id, tenant, run_id, action_id, tool, arguments, binding, binding_hash, approver, expires_at)
values (:approval_id, :tenant, :run_id, :action_id, :tool, cast(:arguments as jsonb), cast(:binding as jsonb), :binding_hash,
        :approver, clock_timestamp() + make_interval(secs => :expires_s))
on conflict (approval_id) do nothing
returning approval_id

-- name: get
select a.*, a.expires_at <= clock_timestamp() as is_over from surefoot.approvals a where a.approval_id = :approval_id

-- name: of_action
select a.*, a.expires_at <= clock_timestamp() as is_over from surefoot.approvals a where a.action_id = :action_id

-- name: of_action_for_update
select a.*, a.expires_at <= clock_timestamp() as is_over from surefoot.approvals a where a.action_id = :action_id for no key update

-- name: decide_if_pending
update surefoot.approvals set state = :state, decided_at = clock_timestamp(), decided_by = :decided_by, decided_role = :decided_role,
       authenticated = :authenticated, reason = :reason
 where approval_id = :approval_id and state = 'pending' and expires_at > clock_timestamp()
returning action_id

-- name: expire_if_pending_and_over
update surefoot.approvals set state = 'expired', decided_at = clock_timestamp(), reason = 'nobody decided in time'
 where approval_id = :approval_id and state = 'pending' and expires_at <= clock_timestamp()
returning action_id

-- name: void_of_actions
update surefoot.approvals set state = 'void', decided_at = coalesce(decided_at, clock_timestamp()), reason = left(:reason, 4000)
 where action_id = any(:action_ids) and state in ('pending', 'approved')

-- name: overdue
select approval_id, tenant from surefoot.approvals where state = 'pending' and expires_at <= clock_timestamp()
 order by expires_at limit :limit

-- name: pending
select * from surefoot.pending_approvals where tenant = :tenant order by requested_at limit :limit

-- name: known
select approval_id from surefoot.approvals where approval_id = :approval_id
