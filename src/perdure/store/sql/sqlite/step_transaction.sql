-- name: result_is_known
SELECT number FROM message WHERE process = :process AND id = :id

-- name: look_at_fence
SELECT id FROM process WHERE id = :process AND token = :token AND owner = :owner
