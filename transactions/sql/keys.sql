-- name: of_call
select key, revision, action_id from surefoot.action_calls where call = :call order by revision desc limit 1

-- name: last_revision_of_key
select revision from surefoot.action_calls
 where tenant = :tenant and tool = :tool and key = :key order by revision desc limit 1

-- name: say
insert into surefoot.action_calls (call, revision, tenant, run_id, segment, tool, key, action_id, open)
values (:call, :revision, :tenant, :run_id, :segment, :tool, :key, :action_id, :open)

-- name: last_undo_of_action
select action_id, state from surefoot.actions
 where run_id = :run_id and undoes = :action_id order by created_at desc limit 1

-- name: sharers_of_settled
select c.call, c.revision, c.run_id, c.tenant, c.action_id
  from surefoot.action_calls c join surefoot.actions a using (action_id)
 where c.open and a.settled_at is not null order by c.run_id, c.call limit :limit

-- name: close
update surefoot.action_calls set open = false where call = :call and revision = :revision and open
