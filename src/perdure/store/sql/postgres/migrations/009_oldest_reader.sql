-- Which Perdure may work beside this schema: one that knows schema ``oldest`` or a newer one. A migration beside which
-- workers of former versions cannot go on says so itself: UPDATE perdure.schema_reader SET oldest = its own number.
CREATE TABLE perdure.schema_reader (
    one    boolean PRIMARY KEY DEFAULT true CONSTRAINT one_schema_reader CHECK (one),
    oldest int NOT NULL
);
INSERT INTO perdure.schema_reader (oldest) VALUES (1);
