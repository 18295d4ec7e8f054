-- What a step's own connection asks around its transaction. Ids travel as text: that connection is the step's, and
-- nothing is set on it that the step might not expect.

-- name: result_is_known
-- Asked before the transaction begins. A worker that freezes in it would hold its locks for ever: after that much silence
-- the server ends the session. Behind a pooler the setting must not stay, for the session is everybody's.
SELECT EXISTS (
    SELECT FROM perdure.message m
    WHERE m.id = CAST(CAST($1 AS text) AS uuid) AND m.process IS NOT DISTINCT FROM CAST(CAST($2 AS text) AS uuid) OFFSET 0
), set_config('idle_in_transaction_session_timeout', CAST($3 AS text), CAST($4 AS boolean))

-- name: keep_result
SELECT k.verdict, k.number, k.at
FROM perdure.keep_result(
    CAST(CAST($1 AS text) AS uuid), CAST(CAST($2 AS text) AS uuid), CAST(CAST($3 AS text) AS uuid), CAST($4 AS int),
    CAST($5 AS text), CAST($6 AS bytea), CAST($7 AS bytea)) AS k

-- name: lock_for_result
-- A transaction with an unknown end holds this lock, or has ended.
SELECT FROM perdure.process p WHERE p.id = CAST(CAST($1 AS text) AS uuid) FOR NO KEY UPDATE
