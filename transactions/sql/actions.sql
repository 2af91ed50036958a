-- name: insert_if_new
insert into surefoot.actions (action_id, tenant, run_id, segment, turn, position, call_id, agent, tool, kind, safety,
                              request, request_hash, gated, attempts_max, attempt_s, elapsed_s_max,
                              verifications_max)
values (:action_id, :tenant, :run_id, :segment, :turn, :position, :call_id, :agent, :tool, :kind, :safety,
        cast(:request as jsonb), :request_hash, :gated, :attempts_max, :attempt_s, :elapsed_s_max,
        :verifications_max)
on conflict (action_id) do nothing
returning action_id

-- name: get
-- What may have been sent in what a restore has lost counts for the age of a key, and else until it is known of.
select a.*, extract(epoch from a.attempt_deadline_at - clock_timestamp()) as deadline_left_s,
       (select extract(epoch from clock_timestamp() - min(t.claimed_at)) from surefoot.attempts t where t.action_id = a.action_id
           and (t.worker_id <> 'lost' or t.attempt = a.attempt or a.safety = 'idempotent')) as since_first_s,
       (select count(*) from surefoot.attempts t where t.action_id = a.action_id and t.outcome = 'unknown') as unknown_attempts,
       (select count(*) from surefoot.verifications v where v.action_id = a.action_id and v.attempt = a.attempt) as asked,
       (select r.source from surefoot.receipts r where r.action_id = a.action_id order by r.receipt_id limit 1) as receipt_source,
       exists (select 1 from surefoot.artifacts f where f.run_id = a.run_id and f.action_id = a.action_id) as has_artifacts
  from surefoot.actions a where a.action_id = :action_id

-- name: lock
select * from surefoot.actions where action_id = :action_id for no key update

-- name: lock_unsettled_of_run
select action_id, turn, position, state from surefoot.actions
 where run_id = :run_id and state in ('PREPARED', 'IN_FLIGHT', 'UNKNOWN') order by action_id for no key update

-- name: prepared_of_run_beyond
select action_id from surefoot.actions
 where run_id = :run_id and state = 'PREPARED' and not action_id = any(:action_ids)

-- name: claim_prepared_with_ticket
update surefoot.actions a
   set state = 'IN_FLIGHT', attempt = a.attempt + 1, claim_generation = r.generation, claim_worker = :worker_id,
       attempt_deadline_at = clock_timestamp() + make_interval(secs => a.attempt_s), reason = null, failure = null,
       updated_at = clock_timestamp()
  from surefoot.runs r
 where a.action_id = :action_id and a.state = 'PREPARED' and a.attempt = :attempt and a.attempt < a.attempts_max
   and not a.verify_first and r.run_id = a.run_id and (cast(:generation as bigint) is null or r.generation = :generation)
   and exists (select 1 from surefoot.outbox_deliveries d
                where d.entry_id = a.action_id and d.consumer = 'effect' and d.state = 'claimed'
                  and d.worker_id = :worker_id and d.attempt = :ticket and d.lease_until > clock_timestamp())
returning a.*, r.generation as run_generation

-- name: record_attempt_if_ticket_still_held
-- The claim read the ticket without a lock: it is read again under one, so that nobody takes it before this commit.
insert into surefoot.attempts (action_id, attempt, tenant, generation, worker_id, deadline_at)
select :action_id, :attempt, :tenant, :generation, :worker_id, :deadline_at
  from surefoot.outbox_deliveries d
 where d.entry_id = :action_id and d.consumer = 'effect' and d.state = 'claimed'
   and d.worker_id = :worker_id and d.attempt = :ticket and d.lease_until > clock_timestamp()
   for no key update
returning attempt

-- name: finish_attempt
update surefoot.attempts set outcome = :outcome, detail = :detail, finished_at = clock_timestamp()
 where action_id = :action_id and attempt = :attempt and outcome is null

-- name: succeed_if_unsettled
update surefoot.actions set state = 'SUCCEEDED', result = cast(:result as jsonb), reason = null, failure = null,
       settled_at = clock_timestamp(), updated_at = clock_timestamp()
 where action_id = :action_id and state in ('PREPARED', 'IN_FLIGHT', 'UNKNOWN')
returning run_id

-- name: succeed_transaction_if_prepared
update surefoot.actions set state = 'SUCCEEDED', result = cast(:result as jsonb), claim_generation = :generation, claim_worker = :worker_id,
       settled_at = clock_timestamp(), updated_at = clock_timestamp()
 where action_id = :action_id and state = 'PREPARED'
returning run_id

-- name: fail_if_attempt
update surefoot.actions set state = 'FAILED', reason = :reason, failure = cast(:failure as text), settled_at = clock_timestamp(), updated_at = clock_timestamp()
 where action_id = :action_id and state in ('PREPARED', 'IN_FLIGHT', 'UNKNOWN') and attempt = :attempt
returning run_id

-- name: unknown_if_in_flight_attempt
update surefoot.actions set state = 'UNKNOWN', reason = :reason, failure = :failure, updated_at = clock_timestamp()
 where action_id = :action_id and state = 'IN_FLIGHT' and attempt = :attempt
returning run_id

-- name: unknown_for_a_person
-- A PREPARED one too, of which an earlier attempt may have been taken.
update surefoot.actions a set state = 'UNKNOWN', reason = :reason, updated_at = clock_timestamp()
 where action_id = :action_id and attempt = :attempt
   and (state in ('IN_FLIGHT', 'UNKNOWN') or (state = 'PREPARED' and exists (
        select 1 from surefoot.attempts t where t.action_id = a.action_id and t.outcome = 'unknown')))
   and not exists (select 1 from surefoot.decisions d where d.action_id = a.action_id and d.attempt = a.attempt)
returning run_id

-- name: prepare_again_if_not_sent
update surefoot.actions set state = 'PREPARED', reason = :reason, failure = :failure, attempts_max = attempts_max + :more,
       updated_at = clock_timestamp()
 where action_id = :action_id and state = 'IN_FLIGHT' and attempt = :attempt
returning run_id

-- name: prepare_again_if_absent_after_deadline
update surefoot.actions set state = 'PREPARED', reason = :reason, failure = null, updated_at = clock_timestamp()
 where action_id = :action_id and state in ('IN_FLIGHT', 'UNKNOWN') and attempt = :attempt
   and attempt_deadline_at < clock_timestamp()
returning run_id

-- name: prepare_again_if_decided_absent
update surefoot.actions set state = 'PREPARED', reason = :reason, failure = null, updated_at = clock_timestamp()
 where action_id = :action_id and attempt = :attempt
   and attempt < attempts_max
   and ((state in ('IN_FLIGHT', 'UNKNOWN') and attempt_deadline_at < clock_timestamp())
        or (state = 'PREPARED' and failure = 'permission'))
returning run_id

-- name: cancel_if_prepared
update surefoot.actions a set state = 'CANCELLED', reason = :reason, settled_at = clock_timestamp(), updated_at = clock_timestamp()
 where action_id = any(:action_ids) and state = 'PREPARED' and not a.verify_first and not (a.safety = 'idempotent' and exists (
        select 1 from surefoot.attempts t where t.action_id = a.action_id and t.outcome = 'unknown' and not exists (
            select 1 from surefoot.decisions d where d.action_id = t.action_id and d.attempt = t.attempt and d.outcome = 'absent')))
returning action_id

-- name: unknown_if_maybe_taken
-- Its key was to be sent again after an attempt that may have been taken: nobody can say that nothing happened.
update surefoot.actions a set state = 'UNKNOWN', reason = :reason, updated_at = clock_timestamp()
 where action_id = any(:action_ids) and state = 'PREPARED' and a.safety = 'idempotent' and exists (
        select 1 from surefoot.attempts t where t.action_id = a.action_id and t.outcome = 'unknown' and not exists (
            select 1 from surefoot.decisions d where d.action_id = t.action_id and d.attempt = t.attempt and d.outcome = 'absent'))
returning action_id

-- name: ask_more_if_unknown
update surefoot.actions a set updated_at = clock_timestamp(), verifications_max = :more + (
       select count(*) from surefoot.verifications v where v.action_id = a.action_id and v.attempt = a.attempt)
 where action_id = :action_id and state = 'UNKNOWN' and safety = 'verify' and failure is distinct from 'conflict'
returning run_id

-- name: record_verification
insert into surefoot.verifications (action_id, n, tenant, attempt, verdict, evidence, generation, worker_id)
select a.action_id, a.verifications, a.tenant, :attempt, :verdict, cast(:evidence as jsonb), r.generation, :worker_id
  from surefoot.actions a join surefoot.runs r using (run_id) where a.action_id = :action_id

-- name: count_verification
update surefoot.actions set verifications = verifications + 1, updated_at = clock_timestamp()
 where action_id = :action_id returning verifications, tenant, run_id

-- name: append_receipt
insert into surefoot.receipts (action_id, attempt, tenant, source, result, contradiction, generation, worker_id)
select a.action_id, :attempt, a.tenant, :source, cast(:result as jsonb), cast(:contradiction as text), r.generation, :worker_id
  from surefoot.actions a join surefoot.runs r using (run_id) where a.action_id = :action_id

-- name: receipts_of
select receipt_id, attempt, source, worker_id, result from surefoot.receipts where action_id = :action_id order by receipt_id

-- name: absent_verdicts_of_attempt
select count(*) as absent from surefoot.verifications where action_id = :action_id and attempt = :attempt and verdict = 'absent'

-- name: insert_revision
insert into surefoot.actions (action_id, tenant, run_id, segment, turn, position, call_id, agent, tool, kind, safety,
                              request, request_hash, gated, attempts_max, attempt_s, elapsed_s_max, verifications_max, revises)
select :revision, tenant, run_id, segment, turn, position, call_id, agent, tool, kind, safety,
       cast(:request as jsonb), :request_hash, gated, attempts_max, attempt_s, elapsed_s_max, verifications_max, action_id
  from surefoot.actions where action_id = :action_id
returning action_id

-- name: point_to_revision
update surefoot.actions set revised_to = :revision, updated_at = clock_timestamp() where action_id = :action_id
