-- name: current
select epoch, begun_at, stood_at, system_id, timeline, database_id from surefoot.epochs
 where tenant = 'default' order by epoch desc limit 1

-- name: whereabouts
select system_id, timeline, database_id from surefoot.whereabouts()

-- name: lock
select pg_advisory_xact_lock(hashtext('surefoot.epoch'))

-- name: note_whereabouts_if_unknown
update surefoot.epochs e set system_id = w.system_id, timeline = w.timeline, database_id = w.database_id
  from surefoot.whereabouts() w
 where e.epoch = :epoch and e.system_id is null and e.timeline is null and e.database_id is null

-- name: begin_next
-- The newest that the rows tell of: what was committed after that may be lost.
insert into surefoot.epochs (epoch, begun_at, stood_at, why, begun_by, system_id, timeline, database_id)
select (select max(e.epoch) from surefoot.epochs e) + 1, n.now,
       coalesce(least(n.now, greatest((select max(r.updated_at) from surefoot.runs r),
                                      (select max(w.lease_until - make_interval(secs => w.lease_s)) from surefoot.workers w))), n.now),
       left(:why, 4000), :by, h.system_id, h.timeline, h.database_id
  from (select clock_timestamp() as now) n, surefoot.whereabouts() h
returning epoch, begun_at, stood_at

-- name: end_workers
update surefoot.workers set state = 'dead', ended_at = clock_timestamp(), reason = :why where state = 'live' returning worker_id

-- name: look_first_at_what_is_prepared
update surefoot.actions set verify_first = true
 where action_id in (select a.action_id from surefoot.actions a where a.kind = 'effect' and a.state = 'PREPARED'
                        and not a.verify_first order by a.action_id for no key update)
returning action_id

-- name: believe_no_absence_yet
-- In what was lost it may have been sent once more.
update surefoot.actions set attempt_deadline_at = greatest(
       attempt_deadline_at, cast(:begun_at as timestamptz) + make_interval(secs => attempt_s)), updated_at = clock_timestamp()
 where action_id in (select a.action_id from surefoot.actions a where a.state in ('IN_FLIGHT', 'UNKNOWN')
                      order by a.action_id for no key update)
returning action_id

-- name: look_first_at_what_came_meanwhile
-- Once more, when the runs are fenced: what a worker of before committed since the first look. What it has locked now, it
-- cannot commit any more.
update surefoot.actions set verify_first = verify_first or state = 'PREPARED', attempt_deadline_at = case when state = 'PREPARED'
       then attempt_deadline_at
       else greatest(attempt_deadline_at, cast(:begun_at as timestamptz) + make_interval(secs => attempt_s)) end
 where action_id in (select a.action_id from surefoot.actions a
                      where a.kind = 'effect' and a.state = 'PREPARED' and not a.verify_first
                         or a.state in ('IN_FLIGHT', 'UNKNOWN')
                            and a.attempt_deadline_at < cast(:begun_at as timestamptz) + make_interval(secs => a.attempt_s)
                      order by a.action_id for no key update skip locked)
returning action_id

-- name: fence_open_runs
-- By more than an execution can have been taken up in what was lost, so that nobody who fences by the generation takes one
-- of those for newer.
with open as (select run_id from surefoot.runs where ended_at is null order by run_id for no key update),
fenced as (
    update surefoot.runs r set generation = r.generation + 1000000, event_seq = r.event_seq + 1, updated_at = clock_timestamp()
      from open where r.run_id = open.run_id
    returning r.run_id, r.tenant, r.event_seq, r.generation)
insert into surefoot.events (run_id, seq, tenant, kind, data, generation)
select run_id, event_seq, tenant, 'epoch.began', jsonb_build_object('epoch', cast(:epoch as integer), 'why', cast(:why as text)), generation
  from fenced
returning run_id

-- name: presume_sent
-- What may have been sent in what was lost counts as an attempt whose outcome nobody knows, and costs none of its own. It
-- began when the lost part began, at the earliest, so that no key is sent again that may be forgotten there; and it is over
-- when what was sent at the end of the lost part is.
with presumed as (
    update surefoot.actions a
       set state = 'UNKNOWN', attempt = a.attempt + 1, attempts_max = a.attempts_max + 1, verify_first = false,
           reason = cast(:reason as text), failure = 'unknown',
           attempt_deadline_at = e.begun_at + make_interval(secs => a.attempt_s), updated_at = clock_timestamp()
      from surefoot.epochs e
     where a.action_id = any(:action_ids) and a.state = 'PREPARED' and a.verify_first and e.epoch = surefoot.epoch()
    returning a.action_id, a.attempt, a.tenant, a.run_id, a.attempt_deadline_at, e.stood_at)
insert into surefoot.attempts (action_id, attempt, tenant, generation, worker_id, claimed_at, deadline_at, outcome, detail, finished_at)
select p.action_id, p.attempt, p.tenant, r.generation, 'lost', p.stood_at, p.attempt_deadline_at, 'unknown', cast(:reason as text),
       clock_timestamp()
  from presumed p join surefoot.runs r using (run_id) order by p.action_id
returning action_id, attempt
