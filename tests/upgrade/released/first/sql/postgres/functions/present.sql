-- The present: the server's clock or a test's, never behind its own high-water mark. One row, for statements to read.
CREATE OR REPLACE VIEW perdure.present AS
SELECT greatest(coalesce(c.fake, clock_timestamp()), c.high_water) AS t FROM perdure.clock c WHERE c.one;
