-- The notes of workers.

-- name: read_notes
SELECT json_group_array(json_array(name, version, changed_at, content)) FROM (SELECT * FROM note ORDER BY name)

-- name: write_note
INSERT INTO note (name, version, changed_at, content)
SELECT :name, :version, :changed_at, :content
WHERE :version = 1 OR EXISTS (SELECT 1 FROM note WHERE name = :name)
ON CONFLICT (name) DO UPDATE SET
    version = excluded.version, changed_at = excluded.changed_at, content = excluded.content
WHERE excluded.version = note.version + 1
