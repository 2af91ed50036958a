create trigger keep_first_state before insert on surefoot.outbox_deliveries
    for each row execute function surefoot.keep_transitions('entry_id', 'consumer');
create trigger keep_transitions before update on surefoot.outbox_deliveries
    for each row when (old.state is distinct from new.state) execute function surefoot.keep_transitions('entry_id', 'consumer');
