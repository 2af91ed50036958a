-- An update that changes no indexed column writes no index, as long as there is room on the row's page. Nothing looks up runs by
-- this column, and with its index every numbered event wrote all indexes of its run.
drop index concurrently if exists surefoot.runs_open;
alter table surefoot.runs set (fillfactor = 70);
alter table surefoot.segments set (fillfactor = 80);
alter table surefoot.actions set (fillfactor = 80);
alter table surefoot.outbox_deliveries set (fillfactor = 80);
-- Few rows that change all the time.
alter table surefoot.workers set (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
alter table surefoot.outbox_keys set (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 100);
alter table surefoot.consumer_limits set (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
alter table surefoot.dispatch set (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
alter table surefoot.queue_turns set (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 100);
alter table surefoot.retention_passes set (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
alter table surefoot.removals set (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100)
