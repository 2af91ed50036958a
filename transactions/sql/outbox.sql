-- name: next_of_key
insert into surefoot.outbox_keys (tenant, topic, key, last_seq) values (:tenant, :topic, :key, 1)
on conflict (tenant, topic, key) do update set last_seq = outbox_keys.last_seq + 1
returning last_seq

-- name: insert_entry
insert into surefoot.outbox_entries (entry_id, tenant, run_id, action_id, topic, key, key_seq, payload)
values (:entry_id, :tenant, :run_id, :action_id, :topic, :key, :key_seq, cast(:payload as jsonb))
on conflict (entry_id) do nothing
returning entry_id

-- name: insert_deliveries
-- To these consumers; null: to who is subscribed to the topic, or if nobody is, to the consumer of its own name.
insert into surefoot.outbox_deliveries
    (entry_id, consumer, tenant, state, attempts_max, due_at, passes_dead, of_topic, of_key, of_seq)
select :entry_id, c.consumer, :tenant, :state, :attempts_max, clock_timestamp() + make_interval(secs => :delay_s),
       coalesce(s.passes_dead, false), :topic, :key, cast(:key_seq as bigint)
  from unnest(coalesce(
           cast(:consumers as text[]),
           (select array_agg(o.consumer order by o.consumer) from surefoot.subscriptions o
             where o.tenant = 'default' and o.topic = :topic and o.ended_at is null),
           array[cast(:topic as text)])) as c (consumer)
  left join surefoot.subscriptions s on s.tenant = 'default' and s.topic = :topic and s.consumer = c.consumer

-- name: claim_due_with_skip_locked
-- A claimant is gone when its row says so. That no row of it is seen says nothing: it may be younger than this statement.
-- Of a key only the head can be claimed: the first that is neither settled nor dead and passed. What is claimed was it.
with lapsed as (
    select c.* from unnest(cast(:consumers as text[])) as n (consumer) cross join lateral (
        select d.entry_id, d.consumer from surefoot.outbox_deliveries d
         where d.consumer = n.consumer and d.state = 'claimed'
           and (d.lease_until < clock_timestamp() or exists (
                    select 1 from surefoot.workers w where w.worker_id = d.worker_id and w.state <> 'live'))
           and (d.consumer <> 'effect' or exists (
                    select 1 from surefoot.actions a where a.action_id = d.entry_id and a.agent = any(:agents)))
         limit :limit for no key update of d skip locked) c),
due as (
    select c.* from unnest(cast(:consumers as text[])) as n (consumer) cross join lateral (
        select d.entry_id, d.consumer from surefoot.outbox_deliveries d
         where d.consumer = n.consumer and d.state = 'pending' and d.due_at <= statement_timestamp()
           and (d.consumer <> 'effect' or exists (
                    select 1 from surefoot.actions a where a.action_id = d.entry_id and a.agent = any(:agents)))
           and (d.of_seq is null or d.of_seq = (
                    select min(h.of_seq) from surefoot.outbox_deliveries h
                     where h.consumer = d.consumer and h.tenant = d.tenant and h.of_topic = d.of_topic and h.of_key = d.of_key
                       and h.of_seq is not null and h.state in ('parked', 'pending', 'claimed', 'dead')
                       and not (h.state = 'dead' and (h.passes_dead or h.consumer = 'effect'))))
         order by d.due_at limit :limit for no key update of d skip locked) c),
chosen as (select * from lapsed union all select * from due limit :limit)
update surefoot.outbox_deliveries d
   set state = 'claimed', attempt = d.attempt + 1, worker_id = :worker_id,
       lease_until = clock_timestamp() + make_interval(secs => :lease_s)
  from chosen, surefoot.outbox_entries e
 where d.entry_id = chosen.entry_id and d.consumer = chosen.consumer and e.entry_id = d.entry_id
returning d.entry_id, d.consumer, d.attempt, d.attempts_max, e.tenant, e.run_id, e.action_id, e.topic, e.payload, e.created_at,
          (select jsonb_build_object('receipt', i.result) from surefoot.inbox i
            where i.consumer = d.consumer and i.entry_id = d.entry_id) as taken

-- name: take_if_free
update surefoot.outbox_deliveries d
   set state = 'claimed', attempt = d.attempt + 1, worker_id = :worker_id,
       lease_until = clock_timestamp() + make_interval(secs => :lease_s)
 where d.entry_id = :entry_id and d.consumer = :consumer
   and (d.state = 'parked' or (d.state = 'pending' and d.due_at <= clock_timestamp())
        or (d.state = 'claimed' and (d.lease_until < clock_timestamp() or exists (
                select 1 from surefoot.workers w where w.worker_id = d.worker_id and w.state <> 'live'))))
returning d.attempt

-- name: renew_if_mine
update surefoot.outbox_deliveries set lease_until = clock_timestamp() + make_interval(secs => :lease_s)
 where entry_id = :entry_id and consumer = :consumer and state = 'claimed' and worker_id = :worker_id and attempt = :attempt
returning attempt

-- name: settle_attempts
-- Each names the attempt it claimed. Locked in one order: two workers may settle the same ones, one of them late.
with ended as (
    select * from jsonb_to_recordset(cast(:ended as jsonb)) as e (
        entry_id text, consumer text, worker_id text, attempt integer, state text, pause_s double precision, detail text, receipt jsonb)),
held as (
    select e.* from surefoot.outbox_deliveries d join ended e using (entry_id, consumer)
     where d.state = 'claimed' and d.worker_id = e.worker_id and d.attempt = e.attempt
     order by d.entry_id, d.consumer for no key update of d)
update surefoot.outbox_deliveries d
   set state = h.state, lease_until = null, receipt = h.receipt, detail = h.detail,
       settled_at = case when h.state <> 'pending' then clock_timestamp() end,
       due_at = case when h.state = 'pending' then clock_timestamp() + make_interval(secs => h.pause_s) else d.due_at end
  from held h where d.entry_id = h.entry_id and d.consumer = h.consumer
returning d.entry_id, d.consumer, d.attempt

-- name: back_off_attempt
update surefoot.outbox_deliveries
   set state = 'pending', lease_until = null, detail = :detail, due_at = clock_timestamp() + make_interval(secs => :pause_s)
 where entry_id = :entry_id and consumer = :consumer and state = 'claimed' and worker_id = :worker_id and attempt = :attempt
returning entry_id

-- name: park_if_open
update surefoot.outbox_deliveries set state = 'parked', lease_until = null, detail = :detail
 where entry_id = :entry_id and consumer = :consumer and state in ('pending', 'claimed')

-- name: parked
select entry_id from surefoot.outbox_deliveries where entry_id = :entry_id and consumer = :consumer and state = 'parked'

-- name: due_now_if_resting
update surefoot.outbox_deliveries set state = 'pending', settled_at = null, due_at = clock_timestamp(), detail = :detail
 where entry_id = :entry_id and consumer = :consumer and state in ('parked', 'pending', 'dead')

-- name: close_of_action
update surefoot.outbox_deliveries
   set state = :state, lease_until = null, settled_at = clock_timestamp(), detail = :detail
 where entry_id = any(:action_ids) and consumer = 'effect' and state in ('parked', 'pending', 'claimed')

-- name: take_into_inbox
insert into surefoot.inbox (consumer, entry_id, tenant, result) values (:consumer, :entry_id, :tenant, cast(:result as jsonb))
on conflict (consumer, entry_id) do nothing
returning entry_id

-- name: take_all_into_inbox
insert into surefoot.inbox (consumer, entry_id, tenant, result)
select consumer, entry_id, tenant, receipt
  from jsonb_to_recordset(cast(:taken as jsonb)) as t (consumer text, entry_id text, tenant text, receipt jsonb)
 order by entry_id, consumer
on conflict (consumer, entry_id) do nothing

-- name: deliveries_page
select d.entry_id, d.consumer, e.topic, e.key, e.run_id, d.state, coalesce(o.standing, d.state) as standing, d.attempt,
       d.attempts_max, d.due_at, e.created_at as put_at, coalesce(o.since, d.settled_at) as since,
       coalesce(o.why, d.detail) as why, o.what_to_do
  from surefoot.outbox_deliveries d join surefoot.outbox_entries e using (entry_id)
  left join surefoot.outbox_open o using (entry_id, consumer)
 where d.tenant = :tenant
   -- A parked effect waits for a decision or for a person: it is among the approvals or on the desk.
   and case when cast(:state as text) is null then o.entry_id is not null and not (d.consumer = 'effect' and d.state = 'parked') else cast(:state as text) in (d.state, o.standing)
            and (d.consumer <> 'effect' or d.state <> 'dead' or o.entry_id is not null) end
   and (cast(:topic as text) is null or e.topic = :topic)
 order by e.created_at, e.key_seq, d.entry_id, d.consumer limit :limit

-- name: entry
select entry_id, topic, key, key_seq, run_id, action_id, payload, created_at as put_at
  from surefoot.outbox_entries where entry_id = :entry_id

-- name: deliveries_of_entry
select d.consumer, d.state, coalesce(o.standing, d.state) as standing, d.attempt, d.attempts_max, d.due_at, d.worker_id,
       d.lease_until, d.settled_at, d.detail, d.receipt, coalesce(o.since, d.settled_at) as since,
       coalesce(o.why, d.detail) as why, o.what_to_do,
       (select i.taken_at from surefoot.inbox i where i.consumer = d.consumer and i.entry_id = d.entry_id) as taken_at
  from surefoot.outbox_deliveries d left join surefoot.outbox_open o using (entry_id, consumer)
 where d.entry_id = :entry_id order by d.consumer

-- name: redrive_if_dead
update surefoot.outbox_deliveries
   set state = 'pending', settled_at = null, due_at = clock_timestamp(), attempts_max = attempt + :attempts,
       detail = left(cast(:told as text) || coalesce('; before: ' || detail, ''), :chars)
 where entry_id = :entry_id and consumer = any(:consumers) and consumer <> 'effect' and state = 'dead'
returning consumer

-- name: discard_if_dead_or_pending
update surefoot.outbox_deliveries
   set state = 'discarded', settled_at = clock_timestamp(),
       detail = left(cast(:told as text) || coalesce('; before: ' || detail, ''), :chars)
 where entry_id = :entry_id and consumer = any(:consumers) and consumer <> 'effect' and state in ('dead', 'pending')
returning consumer
