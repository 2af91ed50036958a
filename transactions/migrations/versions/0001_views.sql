create view surefoot.run_status with (security_invoker = true) as
select r.run_id, r.tenant, r.agent, r.agent_version, r.state,
       (select array_agg(distinct w.kind order by w.kind) from surefoot.waits w
         where w.run_id = r.run_id and w.segment = r.segment and w.state = 'open') as waiting_for,
       r.reason, r.turns, r.segment, r.generation, r.stalls,
       (select count(*) from surefoot.actions a where a.run_id = r.run_id and a.state in ('IN_FLIGHT', 'UNKNOWN')) as unsettled_actions,
       (select count(*) from surefoot.outbox_deliveries d join surefoot.outbox_entries e using (entry_id)
         where e.run_id = r.run_id and d.state in ('pending', 'claimed')) as open_deliveries,
       r.output, r.created_at, r.updated_at, r.ended_at,
       coalesce(r.ended_at, clock_timestamp()) - r.created_at as age
from surefoot.runs r;

create view surefoot.run_timeline with (security_invoker = true) as
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
) t;

create view surefoot.pending_approvals with (security_invoker = true) as
select a.approval_id, a.tenant, a.run_id, r.agent, a.tool, a.approver, a.arguments, a.binding, a.requested_at, a.expires_at
from surefoot.approvals a join surefoot.runs r using (run_id)
where a.state = 'pending' and r.ended_at is null;

create view surefoot.unknown_actions with (security_invoker = true) as
select a.action_id, a.tenant, a.run_id, a.tool, a.safety, a.state, a.attempt, a.verifications, a.reason,
       a.attempt_deadline_at, clock_timestamp() - a.updated_at as since
from surefoot.actions a where a.state in ('IN_FLIGHT', 'UNKNOWN');

create view surefoot.outbox_backlog with (security_invoker = true) as
select d.tenant, e.topic, d.consumer, d.state, count(*) as entries, min(e.created_at) as oldest, max(d.attempt) as attempts
from surefoot.outbox_deliveries d join surefoot.outbox_entries e using (entry_id)
where d.state not in ('delivered', 'discarded')
group by d.tenant, e.topic, d.consumer, d.state;

create view surefoot.worker_status with (security_invoker = true) as
select w.worker_id, w.tenant, w.version, w.host, w.pid, w.state, w.lease_until, w.lease_until - clock_timestamp() as lease_left,
       w.started_at, w.ended_at, w.reason
from surefoot.workers w;
