"""The store on PostgreSQL: many machines, one schema."""
