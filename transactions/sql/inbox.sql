-- name: parts_taken
select consumer, result from surefoot.inbox where entry_id = :entry_id and consumer = any(:consumers)
