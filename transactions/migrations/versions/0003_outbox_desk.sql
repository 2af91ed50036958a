-- What a person has to know of what is not delivered. Adds a column without a default and views: nothing is rewritten.

-- Which consumers a worker has; null: it is of an older version, which does not say.
alter table surefoot.workers add column consumers text[];

create view surefoot.outbox_open with (security_invoker = true) as
with opened as (
    select d.*, e.topic, e.key, e.key_seq, e.run_id, e.action_id, e.created_at as put_at,
           case when e.key is not null then first_value(d.entry_id) over same_key end as head_entry_id,
           case when e.key is not null then first_value(d.state) over same_key end as head_state
      from surefoot.outbox_deliveries d join surefoot.outbox_entries e using (entry_id)
      left join surefoot.actions a on d.consumer = 'effect' and a.action_id = e.action_id
     where d.state in ('parked', 'pending', 'claimed') or (d.state = 'dead' and a.settled_at is null)
    window same_key as (partition by d.tenant, e.topic, d.consumer, e.key order by e.key_seq)),
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

create or replace view surefoot.outbox_backlog with (security_invoker = true) as
select tenant, topic, consumer, state, count(*) as entries, min(put_at) as oldest, max(attempt) as attempts,
       standing, min(since) as since,
       (array_agg(entry_id order by since, key_seq, entry_id))[1] as first_entry_id,
       (array_agg(why order by since, key_seq, entry_id))[1] as why,
       (array_agg(what_to_do order by since, key_seq, entry_id))[1] as what_to_do
from surefoot.outbox_open
group by tenant, topic, consumer, state, standing;

grant select on surefoot.outbox_open to surefoot_app, surefoot_worker;
