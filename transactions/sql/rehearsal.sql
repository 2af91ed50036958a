-- name: look
select r.run_id, r.state, r.reason, r.output, r.ended_at is not null as ended, r.event_seq,
       (select count(*) from surefoot.outbox_deliveries d join surefoot.outbox_entries e using (entry_id)
         where e.run_id = r.run_id and d.state in ('pending', 'claimed')) as deliveries,
       (select count(*) from dbos.workflow_status w where starts_with(w.workflow_uuid, r.run_id || ':')
           and w.status in ('PENDING', 'ENQUEUED', 'DELAYED'))
       + (select count(*) from surefoot.segments s where s.run_id = r.run_id and s.state in ('delayed', 'waiting')) as workflows,
       (select coalesce(array_agg(u.tool order by u.since), '{}') from surefoot.unknown_actions u
         where u.run_id = r.run_id and u.waits_for = 'person') as unknown,
       (select coalesce(array_agg(a.tool || ' by ' || a.approver order by a.requested_at), '{}') from surefoot.approvals a
         where a.run_id = r.run_id and a.state = 'pending') as asks,
       (select extract(epoch from min(a.expires_at) - clock_timestamp())::double precision from surefoot.approvals a
         where a.run_id = r.run_id and a.state = 'pending') as asks_for_s
  from surefoot.runs r where r.run_id = :run_id

-- name: approvals_earlier
update surefoot.approvals set expires_at = expires_at - cast(:by as interval), escalates_at = escalates_at - cast(:by as interval)
 where state in ('pending', 'approved')

-- name: states_earlier
update surefoot.run_states set entered_at = entered_at - cast(:by as interval) where left_at is null

-- name: deliveries_earlier
update surefoot.outbox_deliveries set due_at = due_at - cast(:by as interval), lease_until = lease_until - cast(:by as interval)
 where state in ('parked', 'pending', 'claimed')

-- name: actions_earlier
update surefoot.actions set attempt_deadline_at = attempt_deadline_at - cast(:by as interval)
 where attempt_deadline_at is not null and state in ('IN_FLIGHT', 'UNKNOWN')

-- name: runs_earlier
update surefoot.runs set deadline_at = deadline_at - cast(:by as interval) where deadline_at is not null and ended_at is null

-- name: segments_earlier
update surefoot.segments set queued_at = queued_at - cast(:by as interval) where state in ('delayed', 'waiting')

-- name: schedules_earlier
update surefoot.schedules set next_at = next_at - cast(:by as interval) where next_at is not null

-- name: process_is_gone
update surefoot.workers set pid_start = 'killed in a rehearsal' where worker_id = :worker_id and state = 'live'
