-- First, because it reads the table: meanwhile receipts can be read, and wait to be written.
create index receipts_contradictions on surefoot.receipts (at) where contradiction is not null;

-- What a person says became of an attempt whose outcome nobody knows. Append-only: one decision counts for an attempt.
create table surefoot.decisions (
    action_id     text not null references surefoot.actions,
    attempt       integer not null check (attempt > 0),
    tenant        text not null,
    outcome       text not null check (outcome in ('succeeded', 'absent', 'failed')),
    decided_by    text not null check (length(decided_by) between 1 and 200),
    authenticated boolean not null,
    reason        text check (length(reason) <= 4000),
    result        jsonb check (octet_length(result::text) <= 1048576),
    evidence      jsonb check (octet_length(evidence::text) <= 131072),
    generation    bigint not null,
    at            timestamptz not null default clock_timestamp(),
    primary key (action_id, attempt),
    check (outcome <> 'failed' or reason is not null),
    check ((outcome = 'succeeded') = (result is not null))
);

alter table surefoot.decisions enable row level security;
alter table surefoot.decisions force row level security;
create policy tenant on surefoot.decisions using (tenant = current_setting('surefoot.tenant', true));
create policy worker on surefoot.decisions to surefoot_worker using (true);
grant select, insert on surefoot.decisions to surefoot_app, surefoot_worker;

-- Not validated: every row there is satisfies the narrower one, and so no scan holds the lock.
alter table surefoot.receipts drop constraint receipts_source_check;
alter table surefoot.receipts add constraint receipts_source_check
    check (source in ('answer', 'verification', 'transaction', 'person')) not valid;

drop view surefoot.unknown_actions;
create view surefoot.unknown_actions with (security_invoker = true) as
select u.action_id, u.tenant, u.run_id, u.run_state, u.agent, u.tool, u.safety, u.state, u.attempt, u.attempts_max,
       u.since, clock_timestamp() - u.since as age, u.attempt_deadline_at,
       coalesce(u.reason, 'sent, and no answer is recorded') as why,
       u.request, u.verifications, u.last_verdict, u.last_evidence, u.last_asked_at, u.asked_again_at,
       case when not u.open then 'answer' when u.state = 'IN_FLIGHT' then 'worker'
            when u.safety = 'at_most_once' then 'person' else 'verification' end as waits_for,
       case when u.open then array_remove(array[
           'succeeded', case when u.is_over and u.attempt < u.attempts_max then 'absent' end, 'failed'], null)
           else '{}' end as can,
       case when u.driven and u.state = 'IN_FLIGHT' then 'a worker is at it: wait for its answer'
            when u.state = 'IN_FLIGHT' and not u.is_over then 'wait until the attempt is over at its deadline'
            when u.state = 'IN_FLIGHT' then 'nobody is at it: start a worker that serves its agent, or say what happened'
            when u.safety = 'at_most_once' then 'nobody can be asked: look there yourself and say what happened'
            when u.driven then 'a worker is asking the other side; or look there yourself and say what happened'
            else 'the other side is asked again at asked_again_at; or look there yourself and say what happened'
       end as next
from (
    select a.*, r.state as run_state, t.claimed_at as since, d.driven,
           a.attempt_deadline_at < clock_timestamp() as is_over,
           a.state = 'UNKNOWN' or (a.attempt_deadline_at < clock_timestamp() and not d.driven) as open,
           v.verdict as last_verdict, v.evidence as last_evidence, v.at as last_asked_at,
           case when a.safety <> 'at_most_once' then d.due_at end as asked_again_at
      from surefoot.actions a
      join surefoot.runs r using (run_id)
      join surefoot.attempts t on t.action_id = a.action_id and t.attempt = a.attempt
      left join lateral (
          select coalesce(bool_or(x.state = 'claimed' and x.lease_until > clock_timestamp() and not exists (
                     select 1 from surefoot.workers w where w.worker_id = x.worker_id and w.state <> 'live')), false) as driven,
                 min(x.due_at) filter (where x.state = 'pending') as due_at
            from surefoot.outbox_deliveries x where x.entry_id = a.action_id and x.consumer = 'effect') d on true
      left join lateral (
          select x.verdict, x.evidence, x.at from surefoot.verifications x
           where x.action_id = a.action_id order by x.n desc limit 1) v on true
     where a.state in ('IN_FLIGHT', 'UNKNOWN')) u;

create view surefoot.contradictions with (security_invoker = true) as
select c.receipt_id, c.action_id, c.tenant, a.run_id, a.agent, a.tool, a.state, c.at as since, c.contradiction as why,
       c.attempt, c.source, c.worker_id, c.result, a.result as counts,
       d.outcome as decided, d.decided_by, d.at as decided_at,
       'compare result with what counts: if it happened twice, undo one there; the run goes by what counts' as next
from surefoot.receipts c
join surefoot.actions a using (action_id)
left join surefoot.decisions d on d.action_id = c.action_id and d.attempt = c.attempt
where c.contradiction is not null;

grant select on surefoot.unknown_actions, surefoot.contradictions to surefoot_app, surefoot_worker;

create or replace view surefoot.run_timeline with (security_invoker = true) as
select t.run_id, t.tenant, t.at, t.what, t.name, t.how, t.detail, t.segment, t.generation, t.worker_id,
       row_number() over (partition by t.run_id order by t.at, t.rank, t.name) as line
from (
    select run_id, tenant, at, 1 as rank, 'event' as what, kind as name, null::text as how,
           nullif(data, '{}')::text as detail, null::integer as segment, generation, worker_id
      from surefoot.events where kind not in ('step.done', 'steps.replayed')
    union all
    select run_id, tenant, finished_at, 6, 'step', name, how,
           to_char(1000 * extract(epoch from finished_at - started_at), 'FM999999990') || ' ms', segment, generation, worker_id
      from surefoot.steps
    union all
    select run_id, tenant, created_at, 2, 'action', action_id, state, coalesce(reason, result::text), segment, claim_generation, claim_worker
      from surefoot.actions
    union all
    select a.run_id, t.tenant, t.claimed_at, 3, 'attempt', t.action_id, coalesce(t.outcome, 'no answer recorded'),
           concat_ws(' ', 'attempt', t.attempt, t.detail), a.segment, t.generation, t.worker_id
      from surefoot.attempts t join surefoot.actions a using (action_id)
    union all
    select a.run_id, v.tenant, v.at, 4, 'verification', v.action_id, v.verdict,
           concat_ws(' ', 'of attempt', v.attempt, v.evidence::text), a.segment, v.generation, v.worker_id
      from surefoot.verifications v join surefoot.actions a using (action_id)
    union all
    select a.run_id, c.tenant, c.at, 5, 'receipt', c.action_id, c.source,
           coalesce('CONTRADICTION: ' || c.contradiction || ' ', '') || c.result::text, a.segment, c.generation, c.worker_id
      from surefoot.receipts c join surefoot.actions a using (action_id)
    union all
    select run_id, tenant, coalesce(decided_at, requested_at), 2, 'approval', approval_id, state,
           concat_ws(' ', 'needs', approver, 'decided by ' || decided_by || ' as ' || coalesce(decided_role, 'nobody'),
                     case when authenticated = false then '(unauthenticated)' end, reason), null, null, null
      from surefoot.approvals
    union all
    select run_id, tenant, coalesce(settled_at, opened_at), 7, 'wait', kind || ' ' || wait_id, coalesce(outcome, 'open'),
           concat_ws(' ', 'since', to_char(opened_at, 'HH24:MI:SS.MS'), reason), segment, null, null
      from surefoot.waits
    union all
    select e.run_id, d.tenant, coalesce(d.settled_at, d.created_at), 5, 'delivery', e.entry_id || ' to ' || d.consumer, d.state,
           concat_ws(' ', 'attempt', d.attempt, d.detail), null, null, d.worker_id
      from surefoot.outbox_deliveries d join surefoot.outbox_entries e using (entry_id)
     where e.run_id is not null
    union all
    select a.run_id, d.tenant, d.at, 4, 'decision', d.action_id, d.outcome,
           concat_ws(' ', 'of attempt', d.attempt, 'by', d.decided_by, case when not d.authenticated then '(unauthenticated)' end,
                     d.reason, d.evidence::text), a.segment, d.generation, null
      from surefoot.decisions d join surefoot.actions a using (action_id)
) t;
