"""PostgreSQL is killed, restarted and replaced by its standby under load; nothing acknowledged may be lost."""
