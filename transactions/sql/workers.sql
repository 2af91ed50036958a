-- name: register
insert into surefoot.workers (worker_id, version, host, machine, pid, pid_start, lease_s, consumers, slots, agents, lease_until)
values (:worker_id, :version, :host, :machine, :pid, :pid_start, :lease_s, :consumers, :slots, :agents, clock_timestamp() + make_interval(secs => :lease_s))

-- name: ready_if_live
update surefoot.workers set ready_at = clock_timestamp() where worker_id = :worker_id and state = 'live'

-- name: renew_if_live
update surefoot.workers set lease_until = clock_timestamp() + make_interval(secs => lease_s)
 where worker_id = :worker_id and state = 'live' and lease_until > clock_timestamp()
returning worker_id

-- name: fence_and_release_if_live
-- The runs whose segment it has not ended. Handed over, they did not die: what the next execution finds counts as progress.
-- The worker's row is locked before them, as by who begins an epoch.
with mine as materialized (
    select w.worker_id from surefoot.workers w where w.worker_id = :worker_id for no key update),
leaving as (
    select r.run_id from mine, surefoot.runs r
      join surefoot.segments s on s.run_id = r.run_id and s.n = r.segment and s.state = 'open'
      join dbos.workflow_status d on d.workflow_uuid = r.run_id || ':' || r.segment and d.executor_id = :worker_id
     where r.state in ('running', 'cancelling') and d.status = 'PENDING'
     order by r.run_id
       for no key update of r skip locked
       for share of d skip locked),
fenced as (
    update surefoot.runs r set generation = r.generation + 1, steps_seen = -1, event_seq = r.event_seq + 1, updated_at = clock_timestamp()
      from leaving where r.run_id = leaving.run_id
    returning r.run_id, r.tenant, r.segment, r.event_seq, r.generation),
released as (
    update surefoot.workers set state = 'released', ended_at = clock_timestamp(), reason = 'stopped'
     where worker_id = :worker_id and state = 'live')
insert into surefoot.events (run_id, seq, tenant, kind, data, generation)
select run_id, event_seq, tenant, 'segment.handed_over', jsonb_build_object('segment', segment, 'why', cast(:why as text)), generation
  from fenced
returning run_id

-- name: drain_if_live
update surefoot.workers set draining_at = clock_timestamp() where worker_id = :worker_id and state = 'live' and draining_at is null

-- name: mark_expired
-- Those whose row somebody has locked are passed over until the next round: the others wait for nobody.
update surefoot.workers set state = 'dead', ended_at = clock_timestamp(), reason = 'lease expired'
 where worker_id in (select w.worker_id from surefoot.workers w where w.state = 'live' and w.lease_until < clock_timestamp()
                        for update skip locked)
returning worker_id

-- name: live_on_machine
select worker_id, pid, pid_start from surefoot.workers where state = 'live' and machine = :machine

-- name: mark_gone
update surefoot.workers set state = 'dead', ended_at = clock_timestamp(), reason = :reason
 where worker_id in (select w.worker_id from surefoot.workers w where w.worker_id = :worker_id and w.state = 'live'
                        for update skip locked)
returning worker_id

-- name: try_watchdog_lock
-- Who has it and hangs, in a statement or between two, is stopped by the server: nobody waits for its lock longer.
select set_config('statement_timeout', :hold_ms, true), set_config('lock_timeout', :hold_ms, true),
       set_config('idle_in_transaction_session_timeout', :hold_ms, true),
       pg_try_advisory_xact_lock(hashtext('surefoot.watchdog')) as mine

-- name: sessions_of_dead
-- By the name that `connecting.application_name` gives them. Also of those whose lease is over, for that never comes back: one
-- may have its own row locked, so that nobody can mark it yet.
select a.pid, a.application_name from pg_stat_activity a
  join surefoot.workers w on a.application_name = 'surefoot ' || right(w.worker_id, 54)
 where a.datname = current_database() and (w.state = 'dead' or w.state = 'live' and w.lease_until < clock_timestamp())

-- name: end_session_if_still
select pg_terminate_backend(a.pid) as ended from pg_stat_activity a
 where a.pid = :pid and a.application_name = :application_name

-- name: stranded
select * from surefoot.stranded order by since, workflow_id

-- name: dead_with_pending
select distinct w.worker_id from surefoot.workers w
  join dbos.workflow_status d on d.executor_id = w.worker_id and d.status = 'PENDING'
 where w.state <> 'live'

-- name: agents
select name, version, input_schema, seen_at from surefoot.agents order by name
