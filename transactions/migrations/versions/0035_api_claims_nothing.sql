create policy api_claims_nothing on surefoot.outbox_deliveries as restrictive for update to surefoot_api
    using (true) with check (state <> 'claimed');
