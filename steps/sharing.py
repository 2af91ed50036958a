"""Wake the runs that wait for an action which another run owns, each in a transaction of its own."""

from transactions import Database, Tenant, keys

_SHARERS_MAX = 200


async def wake_sharers(database: Database) -> None:
    """Right after an action with a business key has settled, so that nobody waits for the watchdog's next round."""
    async with database.all_tenants("share.look") as session:
        found = await keys.sharers_of_settled(session, limit=_SHARERS_MAX)
    for sharer in found:
        async with database.transaction("share.wake", Tenant(sharer["tenant"])) as session:
            await keys.wake_sharer(session, sharer)
