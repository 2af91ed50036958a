-- Only what is open: rows are locked one by one, and no table.
update surefoot.outbox_deliveries d set of_topic = e.topic, of_key = e.key, of_seq = e.key_seq
  from surefoot.outbox_entries e
 where e.entry_id = d.entry_id and e.key is not null and d.state in ('parked', 'pending', 'claimed', 'dead');
