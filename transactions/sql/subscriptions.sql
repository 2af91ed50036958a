-- name: announce
insert into surefoot.subscriptions (tenant, topic, consumer, passes_dead) values (:tenant, :topic, :consumer, :passes_dead)
on conflict (tenant, topic, consumer) do update
   set passes_dead = excluded.passes_dead, announced_at = clock_timestamp(), ended_at = null, ended_by = null

-- name: announce_limits
insert into surefoot.consumer_limits (tenant, consumer, in_flight_max, per_second_max, tokens)
values (:tenant, :consumer, :in_flight_max, :per_second_max, greatest(1, coalesce(cast(:per_second_max as double precision), 1)))
on conflict (tenant, consumer) do update
   set in_flight_max = excluded.in_flight_max, per_second_max = excluded.per_second_max

-- name: drop_limits_if_any
update surefoot.consumer_limits set in_flight_max = null, per_second_max = null
 where tenant = :tenant and consumer = :consumer and (in_flight_max is not null or per_second_max is not null)

-- name: end_if_open
update surefoot.subscriptions set ended_at = clock_timestamp(), ended_by = :by
 where topic = :topic and consumer = :consumer and ended_at is null
returning consumer

-- name: topics
select topic, consumer, passes_dead, in_flight_max, per_second_max, paused_until, paused_why, is_served, announced_at
  from surefoot.outbox_topics order by topic, consumer

-- name: lock_limited
-- Counting what is in flight needs a statement of its own after this one: of two who claim, the second sees the first's.
select consumer from surefoot.consumer_limits
 where consumer = any(:consumers)
   and (in_flight_max is not null or per_second_max is not null or paused_until > clock_timestamp())
 order by consumer for no key update

-- name: allowance_of_locked
select l.consumer,
       case when l.paused_until > clock_timestamp() then 0
            else greatest(0, least(l.in_flight_max - l.in_flight, floor(l.tokens_now), :limit)) end as deliveries,
       greatest(extract(epoch from l.paused_until - clock_timestamp()), (1 - l.tokens_now) / l.per_second_max, 0) as again_s
  from (select c.consumer, c.in_flight_max, c.per_second_max, c.paused_until,
               case when c.per_second_max is not null then least(
                   greatest(1, c.per_second_max),
                   c.tokens + extract(epoch from clock_timestamp() - c.filled_at) * c.per_second_max) end as tokens_now,
               (select count(*) from surefoot.outbox_deliveries d
                 where d.consumer = c.consumer and d.state = 'claimed' and d.lease_until >= clock_timestamp()
                   and not exists (select 1 from surefoot.workers w where w.worker_id = d.worker_id and w.state <> 'live')
               ) as in_flight
          from surefoot.consumer_limits c where c.consumer = any(:consumers)) l

-- name: spend
update surefoot.consumer_limits
   set filled_at = clock_timestamp(), tokens = least(
           greatest(1, per_second_max), tokens + extract(epoch from clock_timestamp() - filled_at) * per_second_max) - :deliveries
 where consumer = :consumer and per_second_max is not null

-- name: pause_until_later
insert into surefoot.consumer_limits (tenant, consumer, paused_until, paused_why)
values (:tenant, :consumer, clock_timestamp() + make_interval(secs => :pause_s), :why)
on conflict (tenant, consumer) do update
   set paused_until = excluded.paused_until, paused_why = excluded.paused_why
 where consumer_limits.paused_until is null or consumer_limits.paused_until < excluded.paused_until
