-- name: ask
insert into surefoot.approvals
    (approval_id, n, tenant, run_id, action_id, tool, arguments, binding, binding_hash, approver, approvers, terms, requester,
     people_min, not_requester, expires_at, escalates_at, escalates_to, supersedes, difference)
select :action_id || case when :n > 1 then '~a' || :n else '' end, :n, r.tenant, r.run_id, :action_id, :tool,
       cast(:arguments as jsonb), cast(:binding as jsonb), :binding_hash, (cast(:approvers as text[]))[1], :approvers,
       cast(:terms as jsonb), r.principal, :people_min, :not_requester, clock_timestamp() + make_interval(secs => :expires_s),
       clock_timestamp() + make_interval(secs => cast(:escalates_s as double precision)), cast(:escalates_to as text[]),
       cast(:supersedes as text), cast(:difference as jsonb)
  from surefoot.runs r where r.run_id = :run_id
returning approval_id

-- name: get
select a.*, a.expires_at <= clock_timestamp() as is_over from surefoot.approvals a where a.approval_id = :approval_id

-- name: lock
select a.*, a.expires_at <= clock_timestamp() as is_over,
       coalesce(a.approvers, array[a.approver]) || case when a.escalates_at <= clock_timestamp() then a.escalates_to else '{}' end as may
  from surefoot.approvals a where a.approval_id = :approval_id for no key update

-- name: last_of_action
select a.*, a.expires_at <= clock_timestamp() as is_over from surefoot.approvals a
 where a.action_id = :action_id order by a.n desc limit 1

-- name: last_of_action_for_update
select a.*, a.expires_at <= clock_timestamp() as is_over from surefoot.approvals a
 where a.action_id = :action_id order by a.n desc limit 1 for no key update

-- name: decide_if_pending
update surefoot.approvals set state = :state, decided_at = clock_timestamp(), decided_by = :decided_by, decided_role = :decided_role,
       authenticated = :authenticated, reason = :reason
 where approval_id = :approval_id and state = 'pending' and expires_at > clock_timestamp()
returning action_id

-- name: record_decision
insert into surefoot.approval_decisions (approval_id, n, tenant, decision, decided_by, in_right_of, authenticated, reason)
select a.approval_id, (select count(*) + 1 from surefoot.approval_decisions d where d.approval_id = a.approval_id), a.tenant,
       :decision, :decided_by, :in_right_of, :authenticated, cast(:reason as text)
  from surefoot.approvals a where a.approval_id = :approval_id
on conflict (approval_id, decided_by) do nothing
returning n

-- name: decisions_of
select * from surefoot.approval_decisions where approval_id = :approval_id order by n

-- name: decisions_of_run
select d.* from surefoot.approval_decisions d join surefoot.approvals a using (approval_id)
 where a.run_id = :run_id order by d.approval_id, d.n

-- name: without_right
-- Who agreed and may not any more: disabled, without the role, no longer among those it is asked of, or nobody known
-- while there are tokens.
select d.decided_by from surefoot.approval_decisions d
  left join surefoot.principals p on p.tenant = d.tenant and p.name = d.decided_by
 where d.approval_id = :approval_id and d.decision = 'approve'
   and not (d.in_right_of = any(:may)
            and case when d.authenticated then coalesce(p.disabled_at is null and 'approver' = any(p.roles)
                              and (d.in_right_of = 'user:' || p.name or d.in_right_of = any(select 'role:' || r from unnest(p.roles) r)), false)
                     else not exists (select 1 from surefoot.tenants t where t.tenant = 'default' and t.tokens_since is not null) end)
 order by d.n

-- name: supersede
-- What was said with an approval stays in its decisions; the reason of the approval is why it counts no more.
update surefoot.approvals set state = 'superseded', decided_at = coalesce(decided_at, clock_timestamp()),
       reason = left(:reason, 4000)
 where approval_id = :approval_id and state in ('pending', 'approved') returning approval_id

-- name: superseding
select approval_id from surefoot.approvals where supersedes = :approval_id

-- name: void_pending
update surefoot.approvals set state = 'void', decided_at = clock_timestamp(), reason = left(:reason, 4000)
 where action_id = :action_id and state = 'pending' returning approval_id

-- name: expire_if_pending_and_over
update surefoot.approvals set state = 'expired', decided_at = clock_timestamp(), reason = 'nobody decided in time'
 where approval_id = :approval_id and state = 'pending' and expires_at <= clock_timestamp()
returning action_id

-- name: void_of_actions
update surefoot.approvals set state = 'void', decided_at = coalesce(decided_at, clock_timestamp()), reason = left(:reason, 4000)
 where action_id = any(:action_ids) and state in ('pending', 'approved')

-- name: overdue
-- By the index up to now: compared with clock_timestamp() itself, which may differ from row to row, all would be read.
select approval_id, tenant from surefoot.approvals where state = 'pending' and expires_at <= statement_timestamp()
 order by expires_at limit :limit

-- name: pending
select * from surefoot.pending_approvals where tenant = :tenant order by requested_at limit :limit

-- name: of_run
select a.* from surefoot.approvals a where a.run_id = :run_id order by a.requested_at, a.n

-- name: is_subscribed
select exists (select 1 from surefoot.subscriptions where tenant = 'default' and topic = :topic and ended_at is null) as subscribed

-- name: discard_reminders
update surefoot.outbox_deliveries d set state = 'discarded', settled_at = clock_timestamp(), detail = 'the approval is decided'
  from surefoot.outbox_entries e
 where e.entry_id = d.entry_id and e.run_id in (select a.run_id from surefoot.actions a where a.action_id = any(:action_ids))
   and e.action_id = any(:action_ids) and e.topic in ('approval.reminder', 'approval.escalated')
   and d.state = 'pending'
