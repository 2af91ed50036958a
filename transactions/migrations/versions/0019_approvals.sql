-- An action may be asked about again: each time is a row of its own, numbered by n, and only the last one counts.
-- approvers, terms: null in what an older version has asked.
alter table surefoot.approvals
    add column n             integer not null default 1,
    add column approvers     text[],
    add column terms         jsonb,
    add column requester     text,
    add column people_min    integer not null default 1,
    add column not_requester boolean not null default false,
    add column escalates_at  timestamptz,
    add column escalates_to  text[],
    add column supersedes    text,
    add column difference    jsonb,
    drop constraint approvals_action_id_key,
    drop constraint approvals_state_check,
    add constraint approvals_state_check check (state in
        ('pending', 'approved', 'rejected', 'expired', 'void', 'superseded')) not valid,
    add constraint approvals_terms_check check (n > 0 and people_min between 1 and 10
        and (escalates_at is null) = (escalates_to is null)) not valid;
-- What each person said of an approval. Append-only; one may say it once.
create table surefoot.approval_decisions (
    approval_id   text not null references surefoot.approvals,
    n             integer not null check (n > 0),
    tenant        text not null,
    decision      text not null check (decision in ('approve', 'reject')),
    decided_by    text not null check (length(decided_by) between 1 and 200),
    in_right_of   text not null,
    authenticated boolean not null,
    reason        text check (length(reason) <= 4000),
    at            timestamptz not null default clock_timestamp(),
    primary key (approval_id, n),
    unique (approval_id, decided_by)
);
alter table surefoot.approval_decisions enable row level security;
alter table surefoot.approval_decisions force row level security;
create policy tenant on surefoot.approval_decisions using (tenant = current_setting('surefoot.tenant', true));
create policy worker on surefoot.approval_decisions to surefoot_worker using (true);
grant select, insert on surefoot.approval_decisions to surefoot_app, surefoot_worker;

drop view surefoot.pending_approvals;
create view surefoot.pending_approvals with (security_invoker = true) as
select a.approval_id, a.tenant, a.run_id, r.agent, a.tool, a.approver,
       coalesce(a.approvers, array[a.approver]) || case when a.escalates_at <= clock_timestamp() then a.escalates_to else '{}' end as approvers,
       a.people_min, a.not_requester, a.requester, coalesce(a.terms ->> 'policy', 'always') as policy, a.arguments, a.binding,
       (select coalesce(array_agg(d.decided_by order by d.n), '{}') from surefoot.approval_decisions d
         where d.approval_id = a.approval_id and d.decision = 'approve') as agreed,
       a.supersedes, a.difference, a.requested_at, a.expires_at, a.escalates_at
  from surefoot.approvals a join surefoot.runs r using (run_id)
 where a.state = 'pending' and r.ended_at is null;
grant select on surefoot.pending_approvals to surefoot_app, surefoot_worker;
