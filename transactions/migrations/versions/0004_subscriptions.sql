-- Subscriptions are rows, so that every writer addresses every consumer, whatever it was started with.

create table surefoot.subscriptions (
    tenant       text not null,
    topic        text not null check (length(topic) between 1 and 200),
    consumer     text not null check (length(consumer) between 1 and 200 and consumer <> 'effect'),
    passes_dead  boolean not null,
    announced_at timestamptz not null default clock_timestamp(),
    ended_at     timestamptz,
    ended_by     text check (length(ended_by) between 1 and 200),
    primary key (tenant, topic, consumer),
    check ((ended_at is null) = (ended_by is null))
);

-- Of consumers that have limits, or were asked to pause: their claims lock the row, no others do.
create table surefoot.consumer_limits (
    tenant         text not null,
    consumer       text not null,
    in_flight_max  integer check (in_flight_max > 0),
    per_second_max double precision check (per_second_max > 0),
    tokens         double precision not null default 1,
    filled_at      timestamptz not null default clock_timestamp(),
    paused_until   timestamptz,
    paused_why     text,
    primary key (tenant, consumer)
);

do $$
declare t text;
begin
    foreach t in array array['subscriptions', 'consumer_limits'] loop
        execute format('alter table surefoot.%I enable row level security', t);
        execute format('alter table surefoot.%I force row level security', t);
        execute format('create policy tenant on surefoot.%I using (tenant = current_setting(''surefoot.tenant'', true))', t);
        execute format('create policy worker on surefoot.%I to surefoot_worker using (true)', t);
        execute format('grant select, insert, update on surefoot.%I to surefoot_app, surefoot_worker', t);
    end loop;
end $$;

-- passes_dead: whether those behind it in its key go on when it is dead. of_topic, of_key, of_seq: of its entry, so that the
-- head of a key is found at once, however long its history is. No row is rewritten; 0007 fills in what is open.
alter table surefoot.outbox_deliveries
    add column passes_dead boolean not null default false, add column of_topic text, add column of_key text, add column of_seq bigint;

create function surefoot.fill_delivery() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    select e.topic, e.key, e.key_seq into new.of_topic, new.of_key, new.of_seq
      from surefoot.outbox_entries e where e.entry_id = new.entry_id;
    return new;
end $$;
-- Writers of an older version do not say them.
create trigger fill_delivery before insert on surefoot.outbox_deliveries for each row
    when (new.of_topic is null) execute function surefoot.fill_delivery();

-- A state that a run has at the end of a transaction is told to whoever is subscribed, in that same commit and whatever
-- changed it. Deferred to the commit: a run that waits and is woken in one transaction did not wait.
create function surefoot.tell_run_state() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_topic text := 'run.' || case new.state when 'completed' then 'finished' else new.state end;
    v_caller text := coalesce(current_setting('surefoot.tenant', true), '');
    v_run surefoot.runs%rowtype;
    v_entry text;
    v_too_large boolean;
begin
    perform set_config('surefoot.tenant', new.tenant, true);
    if exists (select 1 from surefoot.subscriptions s
                where s.tenant = new.tenant and s.topic = v_topic and s.ended_at is null) then
        select * into v_run from surefoot.runs r where r.run_id = new.run_id;
        v_entry := new.run_id || '#' || v_topic || ':' || v_run.event_seq;
        v_too_large := coalesce(octet_length(v_run.output::text) > 262144, false);
        if v_run.state = new.state then
            insert into surefoot.outbox_entries (entry_id, tenant, run_id, topic, key, key_seq, payload)
            values (v_entry, new.tenant, new.run_id, v_topic, new.run_id, v_run.event_seq, jsonb_build_object(
                'run_id', v_run.run_id, 'agent', v_run.agent, 'state', v_run.state, 'reason', left(v_run.reason, 4000),
                'output', case when not v_too_large then v_run.output end, 'output_too_large', v_too_large,
                'idempotency_key', v_run.idempotency_key, 'event', v_run.event_seq))
            on conflict do nothing;
            if found then
                insert into surefoot.outbox_deliveries
                    (entry_id, consumer, tenant, state, attempts_max, passes_dead, of_topic, of_key, of_seq)
                select v_entry, s.consumer, s.tenant, 'pending', 20, s.passes_dead, v_topic, new.run_id, v_run.event_seq
                  from surefoot.subscriptions s where s.tenant = new.tenant and s.topic = v_topic and s.ended_at is null;
            end if;
        end if;
    end if;
    perform set_config('surefoot.tenant', v_caller, true);
    return null;
end $$;

create constraint trigger tell_run_state after update of state on surefoot.runs
    deferrable initially deferred for each row
    when (new.state is distinct from old.state and new.state in ('completed', 'failed', 'cancelled', 'held', 'waiting'))
    execute function surefoot.tell_run_state();

create view surefoot.outbox_topics with (security_invoker = true) as
select s.tenant, s.topic, s.consumer, s.passes_dead, l.in_flight_max, l.per_second_max,
       case when l.paused_until > clock_timestamp() then l.paused_until end as paused_until,
       case when l.paused_until > clock_timestamp() then l.paused_why end as paused_why,
       exists (select 1 from surefoot.workers w where w.state = 'live' and s.consumer = any(w.consumers)) as is_served,
       s.announced_at
  from surefoot.subscriptions s left join surefoot.consumer_limits l using (tenant, consumer)
 where s.ended_at is null;
grant select on surefoot.outbox_topics to surefoot_app, surefoot_worker;

create or replace view surefoot.outbox_open with (security_invoker = true) as
with opened as (
    select d.tenant, d.entry_id, d.consumer, d.state, d.attempt, d.attempts_max, d.due_at, d.settled_at, d.worker_id,
           d.lease_until, d.detail, e.topic, e.key, e.key_seq, e.run_id, e.action_id, e.created_at as put_at, l.paused_until, l.paused_why,
           case when e.key is not null then first_value(d.entry_id) over same_key end as head_entry_id,
           case when e.key is not null then first_value(d.state) over same_key end as head_state
      from surefoot.outbox_deliveries d join surefoot.outbox_entries e using (entry_id)
      left join surefoot.actions a on d.consumer = 'effect' and a.action_id = e.action_id
      left join surefoot.consumer_limits l on l.tenant = d.tenant and l.consumer = d.consumer and l.paused_until > clock_timestamp()
     where d.state in ('parked', 'pending', 'claimed') or (d.state = 'dead' and a.settled_at is null)
    window same_key as (partition by d.tenant, e.topic, d.consumer, e.key
                            order by d.state = 'dead' and d.passes_dead, e.key_seq)),  -- a dead one that is passed is no head
judged as (
    select o.*,
           case when o.state = 'pending' and o.consumer <> 'effect'
                     and exists (select 1 from surefoot.workers w where w.state = 'live')
                     and not exists (select 1 from surefoot.workers w where w.state = 'live'
                                        and (w.consumers is null or o.consumer = any(w.consumers))) then 'undeliverable'
                when o.state = 'pending' and o.head_entry_id <> o.entry_id and o.head_state = 'dead' then 'blocked'
                else o.state end as standing
      from opened o)
select j.tenant, j.entry_id, j.consumer, j.topic, j.key, j.key_seq, j.run_id, j.action_id, j.state, j.standing,
       j.attempt, j.attempts_max, j.due_at, j.put_at, coalesce(j.settled_at, j.put_at) as since,
       case j.standing
            when 'undeliverable' then 'no live worker has the consumer ' || j.consumer
            when 'blocked' then 'entry ' || j.head_entry_id || ' of the same key is dead'
            when 'parked' then 'its call waits for the calls before it, or for a decision'
            when 'claimed' then 'worker ' || j.worker_id || ' delivers it, attempt ' || j.attempt || ', its claim lasts until '
                                || to_char(j.lease_until at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"')
            when 'dead' then coalesce(j.detail, 'no reason was recorded')
            else case when j.head_entry_id <> j.entry_id then 'it follows entry ' || j.head_entry_id || ' of the same key'
                      when j.paused_until is not null then 'nothing goes to ' || j.consumer || ' until '
                           || to_char(j.paused_until at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"') || ', which it asked for: '
                           || j.paused_why
                      when j.attempt = 0 and j.detail is null and j.due_at > clock_timestamp() then 'it was put to go later: see due_at'
                      else coalesce(j.detail, 'it was not tried yet') end end as why,
       case when j.consumer = 'effect' then 'it belongs to its action: see `surefoot actions`'
            when j.standing = 'undeliverable' then 'start a worker that has this consumer; or discard it with a reason'
            when j.standing = 'blocked' then 'redrive or discard the entry before it'
            when j.standing = 'dead' and exists (select 1 from surefoot.inbox i
                                                  where i.consumer = j.consumer and i.entry_id = j.entry_id)
                 then 'redrive it: its consumer has taken it, so it is closed without being sent again'
            when j.standing = 'dead' then 'put the cause right and redrive it; or discard it with a reason'
            when j.standing = 'pending' and j.due_at < clock_timestamp() - interval '1 minute'
                 and not exists (select 1 from surefoot.workers w where w.state = 'live')
                 then 'start a worker: none is live that can be seen from here'
            else 'nothing: it goes on by itself' end as what_to_do
  from judged j;
