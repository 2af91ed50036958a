-- name: register
insert into surefoot.workers (worker_id, version, host, machine, pid, pid_start, lease_s, consumers, slots, agents, lease_until)
values (:worker_id, :version, :host, :machine, :pid, :pid_start, :lease_s, :consumers, :slots, :agents, clock_timestamp() + make_interval(secs => :lease_s))

-- name: ready_if_live
update surefoot.workers set ready_at = clock_timestamp() where worker_id = :worker_id and state = 'live'

-- name: renew_if_live
update surefoot.workers set lease_until = clock_timestamp() + make_interval(secs => lease_s)
 where worker_id = :worker_id and state = 'live' and lease_until > clock_timestamp()
returning worker_id

-- name: release_if_live
update surefoot.workers set state = 'released', ended_at = clock_timestamp(), reason = 'stopped'
 where worker_id = :worker_id and state = 'live'

-- name: drain_if_live
update surefoot.workers set draining_at = clock_timestamp() where worker_id = :worker_id and state = 'live' and draining_at is null

-- name: mark_expired
update surefoot.workers set state = 'dead', ended_at = clock_timestamp(), reason = 'lease expired'
 where state = 'live' and lease_until < clock_timestamp()
returning worker_id

-- name: live_on_machine
select worker_id, pid, pid_start from surefoot.workers where state = 'live' and machine = :machine

-- name: mark_gone
update surefoot.workers set state = 'dead', ended_at = clock_timestamp(), reason = :reason
 where worker_id = :worker_id and state = 'live'
returning worker_id

-- name: try_watchdog_lock
-- Who has it and hangs, in a statement or between two, is stopped by the server: nobody waits for its lock longer.
select set_config('statement_timeout', :hold_ms, true), set_config('lock_timeout', :hold_ms, true),
       set_config('idle_in_transaction_session_timeout', :hold_ms, true),
       pg_try_advisory_xact_lock(hashtext('surefoot.watchdog')) as mine

-- name: sessions_of_dead
-- By the name that `connecting.application_name` gives them.
select a.pid, a.application_name from pg_stat_activity a
  join surefoot.workers w on a.application_name = 'surefoot ' || right(w.worker_id, 54)
 where a.datname = current_database() and w.state = 'dead'

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
