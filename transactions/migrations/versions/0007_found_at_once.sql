-- Each reads its table; meanwhile rows can be read, and wait to be written.
update surefoot.outbox_deliveries d set of_topic = e.topic, of_key = e.key, of_seq = e.key_seq
  from surefoot.outbox_entries e
 where e.entry_id = d.entry_id and e.key is not null and d.state in ('parked', 'pending', 'claimed', 'dead');
create index outbox_deliveries_of_key on surefoot.outbox_deliveries (consumer, tenant, of_topic, of_key, of_seq)
 where of_seq is not null and state in ('parked', 'pending', 'claimed', 'dead');
-- The watchdog looks for these among all segments there ever were.
create index segments_lost on surefoot.segments (run_id, n) where outcome = 'lost';
create index actions_stopped on surefoot.actions (updated_at) where state = 'PREPARED' and failure = 'permission';
