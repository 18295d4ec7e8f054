"""The store on SQLite: one file, or memory."""
