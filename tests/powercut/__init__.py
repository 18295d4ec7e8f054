"""The power is cut while SQLite writes; nothing acknowledged may be lost, and the file must be sound."""
