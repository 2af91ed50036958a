-- name: open_of_segment
insert into surefoot.waits (wait_id, run_id, segment, tenant, kind, action_id, call_id, position, state, outcome, reason, settled_at)
values (:wait_id, :run_id, :segment, :tenant, :kind, :action_id, :call_id, :position, :state, :outcome, :reason,
        case when :state = 'settled' then clock_timestamp() end)

-- name: of_segment
select w.*, a.turn from surefoot.waits w left join surefoot.actions a using (action_id)
 where w.run_id = :run_id and w.segment = :segment order by w.position

-- name: settle_of_action
update surefoot.waits set state = 'settled', outcome = :outcome, reason = :reason, settled_at = clock_timestamp()
 where run_id = :run_id and action_id = :action_id and state = 'open' and kind = any(:kinds)

-- name: deny_after
update surefoot.waits set state = 'settled', outcome = 'denied', reason = :reason,
       settled_at = coalesce(settled_at, clock_timestamp())
 where run_id = :run_id and segment = :segment and position > :position

-- name: deny_open
update surefoot.waits set state = 'settled', outcome = 'denied', reason = :reason, settled_at = clock_timestamp()
 where run_id = :run_id and state = 'open'

-- name: count_open
select count(*) as open from surefoot.waits where run_id = :run_id and segment = :segment and state = 'open'

-- name: move
update surefoot.waits w set action_id = :to
 where run_id = :run_id and action_id = :action_id
   and segment = (select r.segment from surefoot.runs r where r.run_id = w.run_id)

-- name: ask_of_action
update surefoot.waits set kind = 'approval'
 where run_id = :run_id and action_id = :action_id and state = 'open' and kind in ('delivery', 'verification')
