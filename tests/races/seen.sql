-- Everything there is about one run.
select to_jsonb(r) || jsonb_build_object(
    'segments', (select coalesce(jsonb_agg(s order by s.n), '[]') from surefoot.segments s where s.run_id = r.run_id),
    'waits', (select coalesce(jsonb_agg(w order by w.segment, w.position), '[]') from surefoot.waits w where w.run_id = r.run_id),
    'actions', (select coalesce(jsonb_agg(a order by a.position), '[]') from surefoot.actions a where a.run_id = r.run_id),
    'attempts', (select coalesce(jsonb_agg(t order by t.action_id, t.attempt), '[]') from surefoot.attempts t join surefoot.actions a using (action_id) where a.run_id = r.run_id),
    'receipts', (select coalesce(jsonb_agg(c order by c.receipt_id), '[]') from surefoot.receipts c join surefoot.actions a using (action_id) where a.run_id = r.run_id),
    'verifications', (select coalesce(jsonb_agg(v order by v.action_id, v.n), '[]') from surefoot.verifications v join surefoot.actions a using (action_id) where a.run_id = r.run_id),
    'decisions', (select coalesce(jsonb_agg(d order by d.action_id, d.attempt), '[]') from surefoot.decisions d join surefoot.actions a using (action_id) where a.run_id = r.run_id),
    'approvals', (select coalesce(jsonb_agg(p order by p.approval_id), '[]') from surefoot.approvals p where p.run_id = r.run_id),
    'deliveries', (select coalesce(jsonb_agg(to_jsonb(d) || jsonb_build_object('now', clock_timestamp()) order by d.entry_id), '[]') from surefoot.outbox_deliveries d join surefoot.outbox_entries e using (entry_id) where e.run_id = r.run_id),
    'events', (select coalesce(jsonb_agg(e order by e.seq), '[]') from surefoot.events e where e.run_id = r.run_id),
    'engine', (select coalesce(jsonb_agg(jsonb_build_object('id', d.workflow_uuid, 'status', d.status)), '[]') from dbos.workflow_status d where d.workflow_uuid like r.run_id || ':%%'),
    'moves', (select coalesce(jsonb_agg(m order by m.id), '[]') from audit.moves m where m.key like r.run_id || '%%')) as seen
  from surefoot.runs r where r.run_id = %s
