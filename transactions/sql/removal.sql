-- Runs that are over, of a tenant and an agent, in order: the next ones after (:after_at, :after_id).

-- name: ended
select run_id as id, ended_at as at from surefoot.runs
 where tenant = :tenant and agent = :agent and ended_at is not null
   and ended_at <= statement_timestamp() - make_interval(secs => :keep_s)
   and (ended_at, run_id) > (cast(:after_at as timestamptz), cast(:after_id as text)) order by ended_at, run_id limit :limit

-- name: ended_with_messages
select run_id as id, ended_at as at from surefoot.runs
 where tenant = :tenant and agent = :agent and ended_at is not null and messages_removed_at is null
   and ended_at <= statement_timestamp() - make_interval(secs => :keep_s)
   and (ended_at, run_id) > (cast(:after_at as timestamptz), cast(:after_id as text)) order by ended_at, run_id limit :limit

-- name: ended_with_events
select run_id as id, ended_at as at from surefoot.runs
 where tenant = :tenant and agent = :agent and ended_at is not null and events_removed_at is null
   and ended_at <= statement_timestamp() - make_interval(secs => :keep_s)
   and (ended_at, run_id) > (cast(:after_at as timestamptz), cast(:after_id as text)) order by ended_at, run_id limit :limit

-- name: ended_with_outbox
select run_id as id, ended_at as at from surefoot.runs
 where tenant = :tenant and agent = :agent and ended_at is not null and outbox_removed_at is null
   and ended_at <= statement_timestamp() - make_interval(secs => :keep_s)
   and (ended_at, run_id) > (cast(:after_at as timestamptz), cast(:after_id as text)) order by ended_at, run_id limit :limit

-- name: lock_actions_skip_locked
select action_id as id from surefoot.actions where run_id = any(:run_ids) order by action_id for update skip locked

-- name: lock_entries_skip_locked
select entry_id as id from surefoot.outbox_entries where run_id = any(:run_ids) order by entry_id for update skip locked

-- name: lock_deliveries_skip_locked
select d.entry_id as id, d.consumer from surefoot.outbox_deliveries d
 where d.entry_id in (select e.entry_id from surefoot.outbox_entries e where e.run_id = any(:run_ids))
 order by d.entry_id, d.consumer for update skip locked

-- name: lock_runs_skip_locked
select run_id as id from surefoot.runs where run_id = any(:run_ids) order by run_id for update skip locked

-- name: unlocked
-- Of these runs those of which somebody else has a row, or which got one more since theirs were locked.
select r.run_id as id from surefoot.runs r
 where r.run_id = any(:run_ids)
   and (exists (select 1 from surefoot.actions a where a.run_id = r.run_id and not a.action_id = any(:actions))
        or exists (select 1 from surefoot.outbox_entries e where e.run_id = r.run_id and not e.entry_id = any(:entries))
        or (select count(*) from surefoot.outbox_deliveries d join surefoot.outbox_entries e using (entry_id) where e.run_id = r.run_id)
           > (select count(*) from unnest(cast(:deliveries as text[])) as x (entry_id)
                join surefoot.outbox_entries e using (entry_id) where e.run_id = r.run_id))

-- name: unfinished
-- Why each of these is not touched: something of it is not done yet, or a person has to look at it.
select r.run_id as id, w.why from surefoot.runs r cross join lateral (select case
    when r.ended_at is null then 'it is not over'
    when exists (select 1 from surefoot.actions a where a.run_id = r.run_id and a.settled_at is null)
         then 'an action of it is not settled'
    when exists (select 1 from surefoot.attempts t join surefoot.actions a using (action_id)
                  where a.run_id = r.run_id and coalesce(t.outcome, 'unknown') = 'unknown' and t.deadline_at > statement_timestamp())
         then 'an attempt of it may still be answered'
    when exists (select 1 from surefoot.receipts c join surefoot.actions a using (action_id)
                  where a.run_id = r.run_id and c.contradiction is not null)
         then 'a receipt of it contradicts what counts'
    when exists (select 1 from surefoot.outbox_deliveries d join surefoot.outbox_entries e using (entry_id)
                  where e.run_id = r.run_id and d.state not in ('delivered', 'discarded')
                    and not (d.state = 'dead' and d.consumer = 'effect'))
         then 'a delivery of it is open or dead'
    when exists (select 1 from surefoot.approvals p where p.run_id = r.run_id and p.state = 'pending')
         then 'an approval of it is pending'
    when exists (select 1 from surefoot.segments s where s.run_id = r.run_id and s.state <> 'settled')
         then 'a segment of it is not settled'
    when exists (select 1 from surefoot.segments s join dbos.workflow_status d on d.workflow_uuid = s.run_id || ':' || s.n
                  where s.run_id = r.run_id and d.status not in ('SUCCESS', 'ERROR', 'CANCELLED', 'MAX_RECOVERY_ATTEMPTS_EXCEEDED'))
         then 'the engine is not done with it'
    end as why) w
 where r.run_id = any(:run_ids) and w.why is not null

-- name: keyed
-- Why each of these stays: a key of it is kept.
select r.run_id as id, w.why from surefoot.runs r cross join lateral (select case
    when exists (select 1 from surefoot.actions a join surefoot.action_calls c using (action_id)
                  where a.run_id = r.run_id and c.run_id = r.run_id and surefoot.is_kept(
                        greatest(r.ended_at, a.settled_at), surefoot.keep_s(r.tenant, r.agent, 'keys', :keys_s)))
         then 'a business key of it is kept'
    when r.idempotency_key is not null
         and surefoot.is_kept(r.ended_at, surefoot.keep_s(r.tenant, r.agent, 'keys', :keys_s))
         then 'its idempotency key is kept'
    end as why) w
 where r.run_id = any(:run_ids) and w.why is not null

-- name: referred_to
-- Why each of these stays: something that is not one of them refers to it.
select r.run_id as id, w.why from surefoot.runs r cross join lateral (select case
    when exists (select 1 from surefoot.actions a join surefoot.action_calls c using (action_id)
                  where a.run_id = r.run_id and not c.run_id = any(:run_ids))
         then 'another run relies on an action of it'
    when exists (select 1 from surefoot.artifacts f where f.run_id = r.run_id and (
             exists (select 1 from surefoot.actions m where m.request @? '$.**.sha256'
                        and jsonb_path_query_array(m.request, '$.**.sha256') @> jsonb_build_array(f.sha256)
                        and m.tenant = f.tenant and not m.run_id = any(:run_ids))
             or exists (select 1 from surefoot.approvals m where m.binding @? '$.**.sha256'
                        and jsonb_path_query_array(m.binding, '$.**.sha256') @> jsonb_build_array(f.sha256)
                        and m.tenant = f.tenant and not m.run_id = any(:run_ids))
             or exists (select 1 from surefoot.runs m where m.input @? '$.**.sha256'
                        and jsonb_path_query_array(m.input, '$.**.sha256') @> jsonb_build_array(f.sha256)
                        and m.tenant = f.tenant and not m.run_id = any(:run_ids))
             or exists (select 1 from surefoot.actions m where m.result @? '$.**.sha256'
                        and surefoot.references_in(m.result) @> array[f.sha256 || ' ' || f.version || ' ' || f.name]
                        and m.tenant = f.tenant and not m.run_id = any(:run_ids))
             or exists (select 1 from surefoot.runs m where m.output @? '$.**.sha256'
                        and surefoot.references_in(m.output) @> array[f.sha256 || ' ' || f.version || ' ' || f.name]
                        and m.tenant = f.tenant and not m.run_id = any(:run_ids))
             or exists (select 1 from surefoot.model_messages m join surefoot.runs o using (run_id)
                         where m.message::text ~ '[0-9a-f]{64}' and surefoot.hashes_in(m.message) @> array[f.sha256]
                           and m.tenant = f.tenant and o.ended_at is null)))
         then 'another run refers to an artifact of it'
    when exists (select 1 from surefoot.artifacts f where f.run_id = r.run_id and (
             exists (select 1 from surefoot.outbox_entries m join surefoot.outbox_deliveries d using (entry_id)
                      where m.payload @? '$.**.sha256'
                        and jsonb_path_query_array(m.payload, '$.**.sha256') @> jsonb_build_array(f.sha256)
                        and m.tenant = f.tenant and d.state not in ('delivered', 'discarded'))
             or exists (select 1 from surefoot.schedules m where m.input @? '$.**.sha256'
                        and jsonb_path_query_array(m.input, '$.**.sha256') @> jsonb_build_array(f.sha256)
                        and m.tenant = f.tenant and m.removed_at is null)))
         then 'a delivery that is open or dead, or a schedule, refers to an artifact of it'
    when exists (select 1 from surefoot.approvals p join surefoot.approvals o on o.supersedes = p.approval_id
                  where p.run_id = r.run_id and not o.run_id = any(:run_ids))
         then 'an approval of another run supersedes one of it'
    when exists (select 1 from surefoot.segments s
                   join surefoot.limits l on l.starts_max is not null and (l.everyone or l.tenant = s.tenant) and l.agent in ('', s.agent)
                  where s.run_id = r.run_id and s.rated and s.n = 0
                    and s.admitted_at > statement_timestamp() - make_interval(secs => l.period_s))
         then 'a limit on starts counts it'
    end as why) w
 where r.run_id = any(:run_ids) and w.why is not null

-- name: remove_runs
-- With everything that is theirs, here and in the engine. What an object of a store held is left to the sweeper, and the number
-- of the last version of a name is given to no other bytes. Foreign keys are checked when all of it is done.
with acts as (select action_id from surefoot.actions where run_id = any(:run_ids)),
entries as (select entry_id from surefoot.outbox_entries where run_id = any(:run_ids)),
engine as (select s.run_id || ':' || s.n as id from surefoot.segments s where s.run_id = any(:run_ids)),
d1 as (delete from surefoot.approval_decisions where approval_id in (
           select approval_id from surefoot.approvals where run_id = any(:run_ids)) returning 1),
d2 as (delete from surefoot.approvals where run_id = any(:run_ids) returning 1),
d3 as (delete from surefoot.waits where run_id = any(:run_ids) returning 1),
d4 as (delete from surefoot.verifications where action_id in (select action_id from acts) returning 1),
d5 as (delete from surefoot.receipts where action_id in (select action_id from acts) returning 1),
d6 as (delete from surefoot.decisions where action_id in (select action_id from acts) returning 1),
d7 as (delete from surefoot.attempts where action_id in (select action_id from acts) returning 1),
d8 as (delete from surefoot.action_calls where run_id = any(:run_ids) returning 1),
d9 as (delete from surefoot.inbox where entry_id in (select entry_id from entries) returning 1),
d10 as (delete from surefoot.outbox_deliveries where entry_id in (select entry_id from entries) returning 1),
d11 as (delete from surefoot.outbox_entries where run_id = any(:run_ids) returning 1),
d12 as (delete from surefoot.artifacts where run_id = any(:run_ids) returning tenant, name, version, result_of, store, object),
d13 as (delete from surefoot.actions where run_id = any(:run_ids) returning 1),
d14 as (delete from surefoot.model_messages where run_id = any(:run_ids) returning 1),
d15 as (delete from surefoot.model_calls where run_id = any(:run_ids) returning 1),
d16 as (delete from surefoot.steps where run_id = any(:run_ids) returning 1),
d17 as (delete from surefoot.events where run_id = any(:run_ids) returning 1),
d18 as (delete from surefoot.run_states where run_id = any(:run_ids) returning 1),
d19 as (delete from surefoot.outbox_keys where topic = 'effect' and (tenant, key) in (
            select tenant, 'undo:' || run_id from surefoot.runs where run_id = any(:run_ids)) returning 1),
d20 as (delete from dbos.workflow_input where workflow_uuid in (select id from engine) returning 1),
d21 as (delete from dbos.workflow_output where workflow_uuid in (select id from engine) returning 1),
d22 as (delete from dbos.operation_outputs where workflow_uuid in (select id from engine) returning 1),
d23 as (delete from dbos.workflow_status where workflow_uuid in (select id from engine) returning 1),
d24 as (delete from surefoot.segments where run_id = any(:run_ids) returning 1),
d25 as (delete from surefoot.state_migrations where run_id = any(:run_ids) returning 1),
d26 as (delete from surefoot.runs where run_id = any(:run_ids) returning tenant),
staged as (insert into surefoot.staged_objects (object, tenant, store)
           select object, tenant, store from d12 where object is not null),
numbers as (insert into surefoot.artifact_numbers as n (tenant, name, last_version)
            select tenant, name, max(version) from d12 where result_of is null group by tenant, name
            on conflict (tenant, name) do update
               set last_version = greatest(n.last_version, excluded.last_version), removed_at = clock_timestamp())
select count(*) as items,
       count(*) + (select count(*) from d1) + (select count(*) from d2) + (select count(*) from d3) + (select count(*) from d4)
       + (select count(*) from d5) + (select count(*) from d6) + (select count(*) from d7) + (select count(*) from d8)
       + (select count(*) from d9) + (select count(*) from d10) + (select count(*) from d11) + (select count(*) from d12)
       + (select count(*) from d13) + (select count(*) from d14) + (select count(*) from d15) + (select count(*) from d16)
       + (select count(*) from d17) + (select count(*) from d18) + (select count(*) from d19) + (select count(*) from d20)
       + (select count(*) from d21) + (select count(*) from d22) + (select count(*) from d23) + (select count(*) from d24)
       + (select count(*) from d25) as rows
  from d26

-- name: remove_messages
-- What was said to the model and by it, also as it was before a migration. Its run says that this is gone, in an event too
-- if there was anything.
with gone as (delete from surefoot.model_messages where run_id = any(:run_ids) returning run_id),
as_it_was as (delete from surefoot.state_migrations where run_id = any(:run_ids) returning 1),
told as (
    update surefoot.runs r set messages_removed_at = clock_timestamp(),
           event_seq = r.event_seq + case when exists (select 1 from gone g where g.run_id = r.run_id) then 1 else 0 end
     where r.run_id = any(:run_ids) returning r.run_id, r.tenant, r.event_seq, r.generation),
events as (
    insert into surefoot.events (run_id, seq, tenant, kind, data, generation)
    select t.run_id, t.event_seq, t.tenant, 'history.removed', jsonb_build_object('what', 'messages'), t.generation
      from told t where t.run_id in (select run_id from gone))
select count(distinct run_id) as items, count(*) + (select count(*) from as_it_was) as rows from gone

-- name: remove_events
-- Events and steps up to now, and what is told of that is the first event that is left.
with gone as (
    delete from surefoot.events where run_id = any(:run_ids) returning run_id, 1 as n),
steps as (
    delete from surefoot.steps where run_id = any(:run_ids) returning run_id),
told as (
    update surefoot.runs r set events_removed_at = clock_timestamp(), event_seq = r.event_seq + 1
     where r.run_id = any(:run_ids) returning r.run_id, r.tenant, r.event_seq, r.generation),
events as (
    insert into surefoot.events (run_id, seq, tenant, kind, data, generation)
    select t.run_id, t.event_seq, t.tenant, 'history.removed',
           jsonb_build_object('what', 'events', 'up_to', t.event_seq - 1), t.generation from told t)
select count(distinct run_id) as items, count(*) + (select count(*) from steps) as rows from gone

-- name: remove_outbox
-- Entries with their deliveries and what consumers said that they took: never one without the other, so that what is taken
-- cannot be taken again. The entry of an effect belongs to its action.
with entries as (
    select e.entry_id, e.run_id from surefoot.outbox_entries e where e.run_id = any(:run_ids) and not exists (
        select 1 from surefoot.outbox_deliveries d where d.entry_id = e.entry_id and d.consumer = 'effect')),
taken as (delete from surefoot.inbox where entry_id in (select entry_id from entries) returning 1),
deliveries as (delete from surefoot.outbox_deliveries where entry_id in (select entry_id from entries) returning 1),
gone as (delete from surefoot.outbox_entries where entry_id in (select entry_id from entries) returning 1),
told as (
    update surefoot.runs r set outbox_removed_at = clock_timestamp(),
           event_seq = r.event_seq + case when exists (select 1 from entries e where e.run_id = r.run_id) then 1 else 0 end
     where r.run_id = any(:run_ids) returning r.run_id, r.tenant, r.event_seq, r.generation),
events as (
    insert into surefoot.events (run_id, seq, tenant, kind, data, generation)
    select t.run_id, t.event_seq, t.tenant, 'history.removed', jsonb_build_object('what', 'outbox'), t.generation
      from told t where t.run_id in (select run_id from entries))
select count(*) as items, count(*) + (select count(*) from taken) + (select count(*) from deliveries) as rows from gone

-- How many items those three would remove.

-- name: look_messages
select count(distinct run_id) as items from surefoot.model_messages where run_id = any(:run_ids)

-- name: look_events
select count(distinct run_id) as items from surefoot.events where run_id = any(:run_ids)

-- name: look_outbox
select count(*) as items from surefoot.outbox_entries e where e.run_id = any(:run_ids) and not exists (
    select 1 from surefoot.outbox_deliveries d where d.entry_id = e.entry_id and d.consumer = 'effect')

-- name: lock_entries_of_no_run_skip_locked
select entry_id as id, created_at as at from surefoot.outbox_entries
 where run_id is null and tenant = :tenant and created_at <= statement_timestamp() - make_interval(secs => :keep_s)
   and (created_at, entry_id) > (cast(:after_at as timestamptz), cast(:after_id as text))
 order by created_at, entry_id limit :limit for update skip locked

-- name: remove_entries_if_delivered_or_discarded
-- look: nothing is removed, and what would be is counted.
with entries as (
    select e.entry_id from surefoot.outbox_entries e where e.entry_id = any(:entry_ids) and not exists (
        select 1 from surefoot.outbox_deliveries d where d.entry_id = e.entry_id
           and (d.state not in ('delivered', 'discarded') or d.settled_at > statement_timestamp() - make_interval(secs => :keep_s)))),
going as (select entry_id from entries where not cast(:look as boolean)),
taken as (delete from surefoot.inbox where entry_id in (select entry_id from going) returning 1),
deliveries as (delete from surefoot.outbox_deliveries where entry_id in (select entry_id from going) returning 1),
gone as (delete from surefoot.outbox_entries where entry_id in (select entry_id from going) returning 1)
select (select count(*) from entries) as items, count(*) + (select count(*) from taken) + (select count(*) from deliveries) as rows from gone

-- name: old_versions
-- Versions that a later one has replaced, of runs that are over. A result that a call's small value stands for goes with its run.
select f.name || ' ' || f.version as id, f.created_at as at, f.name, f.version, f.run_id from surefoot.artifacts f join surefoot.runs r using (run_id)
 where f.tenant = :tenant and r.agent = :agent and r.ended_at is not null and f.result_of is null
   and f.created_at <= statement_timestamp() - make_interval(secs => :keep_s)
   and (f.created_at, f.name || ' ' || f.version) > (cast(:after_at as timestamptz), cast(:after_id as text))
   and exists (select 1 from surefoot.artifacts n where n.tenant = f.tenant and n.name = f.name and n.version > f.version)
 order by f.created_at, f.name || ' ' || f.version limit :limit

-- name: remove_versions_if_nothing_refers_to_them
-- That the call which saved a version answered with it is no reason to keep it. look: nothing is removed, and what would be is
-- counted.
with old as (
    select f.tenant, f.name, f.version from surefoot.artifacts f
      join unnest(cast(:names as text[]), cast(:versions as integer[])) as o (name, version) using (name, version)
     where f.tenant = :tenant
       and exists (select 1 from surefoot.artifacts n where n.tenant = f.tenant and n.name = f.name and n.version > f.version)
       and not exists (select 1 from surefoot.actions m where m.request @? '$.**.sha256'
                          and jsonb_path_query_array(m.request, '$.**.sha256') @> jsonb_build_array(f.sha256) and m.tenant = f.tenant)
       and not exists (select 1 from surefoot.approvals m where m.binding @? '$.**.sha256'
                          and jsonb_path_query_array(m.binding, '$.**.sha256') @> jsonb_build_array(f.sha256) and m.tenant = f.tenant)
       and not exists (select 1 from surefoot.runs m where m.input @? '$.**.sha256'
                          and jsonb_path_query_array(m.input, '$.**.sha256') @> jsonb_build_array(f.sha256) and m.tenant = f.tenant)
       and not exists (select 1 from surefoot.actions m where m.result @? '$.**.sha256' and m.action_id is distinct from f.action_id
                          and surefoot.references_in(m.result) @> array[f.sha256 || ' ' || f.version || ' ' || f.name] and m.tenant = f.tenant)
       and not exists (select 1 from surefoot.runs m where m.output @? '$.**.sha256'
                          and surefoot.references_in(m.output) @> array[f.sha256 || ' ' || f.version || ' ' || f.name] and m.tenant = f.tenant)
       and not exists (select 1 from surefoot.model_messages m join surefoot.runs o using (run_id)
                        where m.message::text ~ '[0-9a-f]{64}' and surefoot.hashes_in(m.message) @> array[f.sha256]
                          and m.tenant = f.tenant and o.ended_at is null)
       and not exists (select 1 from surefoot.outbox_entries m join surefoot.outbox_deliveries d using (entry_id)
                        where m.payload @? '$.**.sha256'
                          and jsonb_path_query_array(m.payload, '$.**.sha256') @> jsonb_build_array(f.sha256)
                          and m.tenant = f.tenant and d.state not in ('delivered', 'discarded'))
       and not exists (select 1 from surefoot.schedules m where m.input @? '$.**.sha256'
                          and jsonb_path_query_array(m.input, '$.**.sha256') @> jsonb_build_array(f.sha256)
                          and m.tenant = f.tenant and m.removed_at is null)),
gone as (
    delete from surefoot.artifacts f using old o
     where not cast(:look as boolean) and f.tenant = o.tenant and f.name = o.name and f.version = o.version
    returning f.object, f.tenant, f.store),
staged as (
    insert into surefoot.staged_objects (object, tenant, store)
    select object, tenant, store from gone where object is not null)
select (select count(*) from old) as items, count(*) as rows from gone
