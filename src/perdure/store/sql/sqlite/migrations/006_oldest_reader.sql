-- Which Perdure may work beside this schema: one that knows schema ``oldest`` or a newer one. A migration beside which
-- workers of former versions cannot go on says so itself: UPDATE schema_reader SET oldest = its own number.

CREATE TABLE schema_reader (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    oldest INTEGER NOT NULL
) STRICT;

INSERT INTO schema_reader (one, oldest) VALUES (1, 1);
