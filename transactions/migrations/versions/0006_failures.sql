-- Columns with a constant default, which rewrite nothing.
alter table surefoot.actions
    add column failure text,
    add column elapsed_s_max double precision not null default 86400,
    add column verifications_max integer not null default 20;
-- Not validated: the rows that are there have the defaults, and so no scan holds the lock.
alter table surefoot.actions add constraint actions_failure_check check (failure in
    ('transient', 'rate_limited', 'invalid_input', 'permission', 'rejected', 'unknown', 'conflict')) not valid;
alter table surefoot.actions add constraint actions_limits_check
    check (elapsed_s_max > 0 and verifications_max > 0) not valid;

create or replace view surefoot.unknown_actions with (security_invoker = true) as
select u.action_id, u.tenant, u.run_id, u.run_state, u.agent, u.tool, u.safety, u.state, u.attempt, u.attempts_max,
       u.since, clock_timestamp() - u.since as age, u.attempt_deadline_at,
       coalesce(u.reason, 'sent, and no answer is recorded') as why,
       u.request, u.verifications, u.last_verdict, u.last_evidence, u.last_asked_at, u.asked_again_at,
       case when not u.open then 'answer' when u.state = 'IN_FLIGHT' then 'worker'
            when u.for_a_person then 'person' else 'verification' end as waits_for,
       case when u.state = 'PREPARED' then array['succeeded', 'absent', 'failed']
            when u.open then array_remove(array[
           'succeeded', case when u.is_over and u.attempt < u.attempts_max then 'absent' end, 'failed'], null)
           else '{}' end as can,
       case when u.state = 'PREPARED' then 'put the permission right and say absent: it is sent again; or say what happened'
            when u.driven and u.state = 'IN_FLIGHT' then 'a worker is at it: wait for its answer'
            when u.state = 'IN_FLIGHT' and not u.is_over then 'wait until the attempt is over at its deadline'
            when u.state = 'IN_FLIGHT' then 'nobody is at it: start a worker that serves its agent, or say what happened'
            when u.for_a_person and u.safety = 'verify' and u.failure is distinct from 'conflict' then
                 'nobody is asked any more: look there yourself and say what happened; or have it asked again'
            when u.for_a_person then 'nobody can be asked: look there yourself and say what happened'
            when u.driven then 'a worker is asking the other side; or look there yourself and say what happened'
            else 'the other side is asked again at asked_again_at; or look there yourself and say what happened'
       end as next,
       u.failure
from (
    select a.*, r.state as run_state, t.claimed_at as since, d.driven,
           a.attempt_deadline_at < clock_timestamp() as is_over,
           a.state <> 'IN_FLIGHT' or (a.attempt_deadline_at < clock_timestamp() and not d.driven) as open,
           a.state = 'PREPARED' or a.safety = 'at_most_once' or d.parked as for_a_person,
           v.verdict as last_verdict, v.evidence as last_evidence, v.at as last_asked_at,
           case when a.safety <> 'at_most_once' then d.due_at end as asked_again_at
      from surefoot.actions a
      join surefoot.runs r using (run_id)
      join surefoot.attempts t on t.action_id = a.action_id and t.attempt = a.attempt
      left join lateral (
          select coalesce(bool_or(x.state = 'claimed' and x.lease_until > clock_timestamp() and not exists (
                     select 1 from surefoot.workers w where w.worker_id = x.worker_id and w.state <> 'live')), false) as driven,
                 coalesce(bool_or(x.state = 'parked'), false) as parked,
                 min(x.due_at) filter (where x.state = 'pending') as due_at
            from surefoot.outbox_deliveries x where x.entry_id = a.action_id and x.consumer = 'effect') d on true
      left join lateral (
          select x.verdict, x.evidence, x.at from surefoot.verifications x
           where x.action_id = a.action_id order by x.n desc limit 1) v on true
     where a.state in ('IN_FLIGHT', 'UNKNOWN') or (a.state = 'PREPARED' and a.failure = 'permission')) u;

-- The last column is new: what a person has to do for the run, if anything.
create or replace view surefoot.run_status with (security_invoker = true) as
select r.run_id, r.tenant, r.agent, r.agent_version, r.state,
       (select array_agg(distinct w.kind order by w.kind) from surefoot.waits w
         where w.run_id = r.run_id and w.segment = r.segment and w.state = 'open') as waiting_for,
       r.reason, r.turns, r.segment, r.generation, r.stalls,
       (select count(*) from surefoot.actions a where a.run_id = r.run_id and a.state in ('IN_FLIGHT', 'UNKNOWN')) as unsettled_actions,
       (select count(*) from surefoot.outbox_deliveries d join surefoot.outbox_entries e using (entry_id)
         where e.run_id = r.run_id and d.state in ('pending', 'claimed')) as open_deliveries,
       r.output, r.created_at, r.updated_at, r.ended_at,
       coalesce(r.ended_at, clock_timestamp()) - r.created_at as age,
       case when exists (select 1 from surefoot.approvals p where p.run_id = r.run_id and p.state = 'pending' and r.ended_at is null)
                 then 'decide: see `surefoot approvals list`'
            when exists (select 1 from surefoot.actions a join surefoot.outbox_deliveries d on d.entry_id = a.action_id and d.consumer = 'effect'
                          where a.run_id = r.run_id and ((a.state = 'UNKNOWN' and d.state = 'parked')
                                or (a.state = 'PREPARED' and a.failure = 'permission' and d.state = 'dead')))
                 then 'say what became of its effect: see `surefoot actions list`'
            when r.state = 'held' then 'put the cause right, then `surefoot runs release`' end as what_to_do
from surefoot.runs r;
