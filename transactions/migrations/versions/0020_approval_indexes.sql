create unique index approvals_action on surefoot.approvals (action_id, n);
create index approvals_superseding on surefoot.approvals (supersedes) where supersedes is not null;
create unique index approvals_one_open on surefoot.approvals (action_id) where state in ('pending', 'approved');

insert into surefoot.approval_decisions (approval_id, n, tenant, decision, decided_by, in_right_of, authenticated, reason, at)
select approval_id, 1, tenant, case state when 'rejected' then 'reject' else 'approve' end, decided_by, approver, authenticated, reason, decided_at
  from surefoot.approvals where decided_by is not null on conflict do nothing;
