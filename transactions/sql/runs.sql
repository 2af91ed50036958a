-- name: start
select surefoot.start_run(:agent, cast(:input as jsonb), :key, :tenant, :principal, :priority, cast(:not_before as timestamptz)) as run_id

-- name: lock
select * from surefoot.runs where run_id = :run_id for no key update

-- name: get
select * from surefoot.run_status where run_id = :run_id

-- name: page
select * from surefoot.run_status where tenant = :tenant and (cast(:state as text) is null or state = :state) order by created_at desc limit :limit

-- name: stuck
select * from surefoot.stuck_runs where tenant = :tenant order by seconds - limit_s desc, run_id limit :limit

-- name: number_fenced
with numbered as (
    update surefoot.runs set event_seq = event_seq + jsonb_array_length(cast(:events as jsonb)), updated_at = clock_timestamp()
     where run_id = :run_id and generation = :generation and segment = :segment and state = 'running'
    returning run_id, tenant, event_seq)
insert into surefoot.events (run_id, seq, tenant, kind, data, generation, worker_id)
select n.run_id, n.event_seq - jsonb_array_length(cast(:events as jsonb)) + e.ordinality, n.tenant,
       e.value ->> 'kind', e.value -> 'data', :generation, :worker_id
  from numbered n, jsonb_array_elements(cast(:events as jsonb)) with ordinality as e (value, ordinality)
returning seq

-- name: number_fenced_or_cancelling
with numbered as (
    update surefoot.runs set event_seq = event_seq + jsonb_array_length(cast(:events as jsonb)), updated_at = clock_timestamp()
     where run_id = :run_id and generation = :generation and segment = :segment and state in ('running', 'cancelling')
    returning run_id, tenant, event_seq, state)
insert into surefoot.events (run_id, seq, tenant, kind, data, generation, worker_id)
select n.run_id, n.event_seq - jsonb_array_length(cast(:events as jsonb)) + e.ordinality, n.tenant,
       e.value ->> 'kind', e.value -> 'data', :generation, :worker_id
  from numbered n, jsonb_array_elements(cast(:events as jsonb)) with ordinality as e (value, ordinality)
returning seq, (select state from numbered) as state

-- name: cancelling_of_execution
select 1 from surefoot.runs
 where run_id = :run_id and generation = :generation and segment = :segment and state = 'cancelling'

-- name: cancelling_of
select run_id from surefoot.runs where run_id = any(:run_ids) and state = 'cancelling'

-- name: cancel_if_running
update surefoot.runs set state = 'cancelling', reason = :reason, updated_at = clock_timestamp()
 where run_id = :run_id and state = 'running'
returning segment

-- name: number_open
with numbered as (
    update surefoot.runs set event_seq = event_seq + jsonb_array_length(cast(:events as jsonb)), updated_at = clock_timestamp()
     where run_id = :run_id and state in ('queued', 'running', 'waiting')
    returning run_id, tenant, event_seq, generation)
insert into surefoot.events (run_id, seq, tenant, kind, data, generation, worker_id)
select n.run_id, n.event_seq - jsonb_array_length(cast(:events as jsonb)) + e.ordinality, n.tenant,
       e.value ->> 'kind', e.value -> 'data', n.generation, :worker_id
  from numbered n, jsonb_array_elements(cast(:events as jsonb)) with ordinality as e (value, ordinality)
returning seq

-- name: number
with numbered as (
    update surefoot.runs set event_seq = event_seq + jsonb_array_length(cast(:events as jsonb)), updated_at = clock_timestamp()
     where run_id = :run_id
    returning run_id, tenant, event_seq, generation)
insert into surefoot.events (run_id, seq, tenant, kind, data, generation, worker_id)
select n.run_id, n.event_seq - jsonb_array_length(cast(:events as jsonb)) + e.ordinality, n.tenant,
       e.value ->> 'kind', e.value -> 'data', n.generation, :worker_id
  from numbered n, jsonb_array_elements(cast(:events as jsonb)) with ordinality as e (value, ordinality)
returning seq

-- name: events_page
select seq, kind, data, generation, worker_id, at from surefoot.events
 where run_id = :run_id and seq > :after order by seq limit :limit

-- name: timeline
select * from surefoot.run_timeline where run_id = :run_id order by line

-- name: begin_if_queued_or_running
update surefoot.runs
   set state = 'running', generation = generation + 1, stalls = :stalls, steps_seen = :steps_seen,
       agent_version = :agent_version, app_version = :app_version, state_version = :state_version,
       asked = null, asked_reason = null, updated_at = clock_timestamp()
 where run_id = :run_id and segment = :segment and state in ('queued', 'running')
returning generation

-- name: end_if_running
update surefoot.runs
   set state = :state, reason = :reason, output = cast(:output as jsonb), usage = cast(:usage as jsonb), turns = :turns,
       asked = null, asked_reason = null, refused_by = '{}',
       ended_at = case when :ended then clock_timestamp() end, updated_at = clock_timestamp()
 where run_id = :run_id and segment = :segment and generation = :generation and state = 'running'
returning state

-- name: end_if_cancelling
update surefoot.runs
   set state = 'cancelled', usage = coalesce(cast(:usage as jsonb), usage), turns = greatest(turns, :turns),
       ended_at = clock_timestamp(), updated_at = clock_timestamp()
 where run_id = :run_id and state = 'cancelling'
returning state

-- name: record_turn_of_generation
with before as (select phase from surefoot.runs where run_id = :run_id for no key update)
update surefoot.runs r
   set turns = greatest(r.turns, :turns), usage = cast(:usage as jsonb), phase = coalesce(cast(:phase as text), r.phase)
  from before where r.run_id = :run_id and r.generation = :generation
returning r.phase is distinct from before.phase as phase_changed

-- name: stop_if_open
update surefoot.runs
   set state = :state, reason = :reason, held_for = null, asked = null, asked_reason = null,
       ended_at = case when :ended then clock_timestamp() end, updated_at = clock_timestamp()
 where run_id = :run_id and ended_at is null
returning state

-- name: held_until_a_version_can
update surefoot.runs set held_for = 'version' where run_id = :run_id and state = 'held'

-- name: raise_segment_if_waiting
update surefoot.runs
   set state = 'queued', segment = segment + 1, reason = null, updated_at = clock_timestamp()
 where run_id = :run_id and segment = :segment and state = 'waiting'
returning segment, tenant

-- name: raise_segment_if_held
update surefoot.runs
   set state = 'queued', segment = segment + 1, stalls = 0, reason = null, held_for = null,
       refused_by = case when :anywhere then '{}' else refused_by end, updated_at = clock_timestamp()
 where run_id = :run_id and state = 'held'
returning segment, tenant

-- name: wait_if_held
update surefoot.runs set state = 'waiting', reason = null, held_for = null, updated_at = clock_timestamp()
 where run_id = :run_id and state = 'held'

-- name: ask_if_running
update surefoot.runs set asked = :asked, asked_reason = :reason where run_id = :run_id and state = 'running'

-- name: unask_if_hold_is_asked
update surefoot.runs set asked = null, asked_reason = null where run_id = :run_id and state = 'running' and asked = 'hold'
returning run_id

-- name: asked_of
select run_id from surefoot.runs where run_id = any(:run_ids) and state = 'running' and asked is not null

-- name: refuse
update surefoot.runs set refused_by = array_append(array_remove(refused_by, :version), :version) where run_id = :run_id

-- name: pin
update surefoot.runs
   set pinned_version = :version, updated_at = clock_timestamp(),
       refused_by = case when cast(:version as text) is null then '{}' else array_remove(refused_by, :version) end
 where run_id = :run_id

-- name: begun_by
select run_id from surefoot.runs
 where tenant = :tenant and app_version = :version and ended_at is null and run_id > :after order by run_id limit :limit

-- name: raise_segment_after_loss
update surefoot.runs
   set state = 'queued', segment = segment + 1, generation = generation + 1, stalls = :stalls, updated_at = clock_timestamp()
 where run_id = :run_id and segment = :segment and state in ('queued', 'running')
returning segment, tenant

-- name: raise_generations_of_dead
with dead as (
    select r.run_id from surefoot.runs r
      join surefoot.segments s on s.run_id = r.run_id and s.n = r.segment and s.state = 'open'
      join dbos.workflow_status d on d.workflow_uuid = r.run_id || ':' || r.segment and d.executor_id = :worker_id
     where r.state in ('running', 'cancelling') and d.status = 'PENDING'
     order by r.run_id limit :limit
       for no key update of r skip locked
       for share of d skip locked)  -- so that nobody has taken it over when its generation is raised
update surefoot.runs r set generation = generation + 1, updated_at = clock_timestamp()
  from dead where r.run_id = dead.run_id
returning r.run_id

-- name: identity
select run_id, tenant, agent, input, principal, state, agent_version, state_version, ended_at is not null as ended
  from surefoot.runs where run_id = :run_id
