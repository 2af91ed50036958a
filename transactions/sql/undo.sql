-- name: effects_of_run
-- What was done, the last first, and what nobody knows the outcome of; each with the last action that undoes it.
select a.action_id, a.agent, a.tool, a.state, a.request, a.result, a.settled_at,
       u.action_id as undo_id, u.state as undo_state, u.reason as undo_reason,
       (select count(*) from surefoot.actions x where x.run_id = a.run_id and x.undoes = a.action_id) as undos,
       (select c.run_id from surefoot.action_calls c join surefoot.runs r on r.run_id = c.run_id
         where c.action_id = a.action_id and c.run_id <> a.run_id and r.state not in ('cancelled', 'failed')
         order by c.at limit 1) as relied_on_by
  from surefoot.actions a
  left join lateral (
      select x.action_id, x.state, x.reason from surefoot.actions x
       where x.run_id = a.run_id and x.undoes = a.action_id order by x.created_at desc, x.action_id desc limit 1) u on true
 where a.run_id = :run_id and a.kind = 'effect' and a.undoes is null and a.state in ('SUCCEEDED', 'IN_FLIGHT', 'UNKNOWN')
 order by a.settled_at desc nulls first, a.turn desc, a.position desc

-- name: insert_undo
insert into surefoot.actions (action_id, tenant, run_id, segment, turn, position, call_id, agent, tool, kind, safety,
                              request, request_hash, gated, attempts_max, attempt_s, elapsed_s_max,
                              verifications_max, undoes)
select :undo_id, a.tenant, a.run_id, a.segment, a.turn, a.position, a.call_id, a.agent, :tool, 'effect', :safety,
       cast(:request as jsonb), :request_hash, false, :attempts_max, :attempt_s, :elapsed_s_max, :verifications_max,
       a.action_id
  from surefoot.actions a where a.action_id = :action_id
