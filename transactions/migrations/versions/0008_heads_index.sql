-- Reads its table; meanwhile rows can be read, and wait to be written.
create index outbox_deliveries_of_key on surefoot.outbox_deliveries (consumer, tenant, of_topic, of_key, of_seq)
 where of_seq is not null and state in ('parked', 'pending', 'claimed', 'dead');
