create trigger keep_first_state before insert on surefoot.actions
    for each row execute function surefoot.keep_transitions('action_id');
create trigger keep_transitions before update on surefoot.actions
    for each row when (old.state is distinct from new.state) execute function surefoot.keep_transitions('action_id');
