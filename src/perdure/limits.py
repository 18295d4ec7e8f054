"""Every default and every bound, each with its unit in its name."""

from __future__ import annotations

import os

WRONG_RECORDS: list[str] = []
"""What the environment sets wrongly. An engine refuses it: an error while this is imported reaches no command line."""


def _set(name: str, default: int) -> int:
    """The number that the environment sets, or the default; what is no number is kept for later."""
    given = os.environ.get(name) or str(default)
    if not (given.isascii() and given.isdigit() and len(given) < 19 and int(given)):
        WRONG_RECORDS.append(f"{name} is {given[:100]!r}. Give a whole number above 0, or unset it.")
        return default
    return int(given)


# Payloads and names (refused at the door, alike on every store)
INSIDE_PAYLOAD_BYTES = 2 * 1024 * 1024
PAYLOAD_BYTES = _set("PERDURE_PAYLOAD_BYTES", INSIDE_PAYLOAD_BYTES)
OFFLOAD_ABOVE_BYTES = 128 * 1024
OFFLOAD_GRACE_SECONDS = 24 * 3600.0
PUT_OFF_SECONDS = 5.0
HANDOVER_FIRST_SECONDS = 1.0
HANDOVER_LONGEST_SECONDS = 30.0
HANDOVER_ASIDE_SECONDS = 2.0
HANDOVER_ALONE_SECONDS = 60.0
HANDOVER_SECONDS = 30 * 60.0
ERROR_TEXT_BYTES = 4 * 1024
KEY_BYTES = 255
NAME_BYTES = 255
PAYLOAD_DEPTH = 64
INTEGER_DIGITS = 4_300
ATTRIBUTES_BYTES = 64 * 1024
STACK_TEXT_BYTES = 8 * 1024

# What may wait in the inbox of one process: signals and calls that its code has not received
INBOX_RECORDS = _set("PERDURE_INBOX_MESSAGES", 10_000)
INBOX_BYTES = _set("PERDURE_INBOX_BYTES", 64 * 1024 * 1024)
FIRST_RECORDS = 8
MAILBOX_BYTES = 256 * 1024
SMALL_INBOX_RECORDS = 16

# Schedules
SCHEDULE_STARTED_RECORDS = 100
SCHEDULE_MISSED_RECORDS = 1_000
SCHEDULE_BACKFILL_RECORDS = 1_000
SCHEDULE_RUNNING_RECORDS = 10_000  # with what has become of each they are the arguments of a step: less than 2 MiB
SCHEDULE_GRACE_SECONDS = 10.0  # what is no later is never missed: a schedule wakes some time after its instant
SCHEDULE_LOOK_SECONDS = 5.0
SCHEDULE_RETRY_SECONDS = 60.0

# Flows: the last events that came and were not expected, how large what came with them may be, and how many events a
# flow goes through without waiting
UNEXPECTED_EVENTS = 20
UNEXPECTED_BYTES = 1_000
FLOW_EVENTS = 100

# What travels with a request
CONTEXT_BYTES = 4 * 1024

# Reply addresses and webhooks
REPLY_RECORDS = 1_000  # that one client knows of each kind, and looks for no more
WEBHOOK_URL_BYTES = 2_000
WEBHOOK_DELIVERY_RECORDS = 8  # requests that one webhook has under way at once
WEBHOOK_AGAIN_RECORDS = 4  # of these, with notices that were not taken before: so there is room for new ones
WEBHOOK_WAITING_RECORDS = 200  # notices out of the inbox: if nobody takes them, each is posted a hundred times a day
WEBHOOK_WAITING_BYTES = 8 * 1024 * 1024  # of these, which a worker has in memory
WEBHOOK_NOTICE_RECORDS = 500  # after so many requests a webhook continues as new
WEBHOOK_SILENT_SECONDS = 15.0
WEBHOOK_RETRY_SECONDS = 900.0
WEBHOOK_TRIED_SECONDS = 24 * 3600.0

# Histories
HISTORY_WARN_EVENTS = 10_000
HISTORY_HOLD_EVENTS = 50_000

# Leases, beats and clocks
LEASE_SECONDS = 15.0
BEAT_SECONDS = 3.0
LEASE_MARGIN_SECONDS = 1.5
PROBE_SECONDS = 0.45
PROBE_AGAIN_SECONDS = 0.2
PROBE_GRACE_SECONDS = 3.0
IDLE_WAIT_SECONDS = 3600.0
RESULT_FIRST_SECONDS = 0.01
IDLE_CHECK_SECONDS = 24 * 3600.0
FARTHEST_SECONDS = 100 * 365 * 24 * 3600.0
SKIPPED_DAYS = 1_000
IDLE_CHECK_JITTER = 0.2

# What one worker runs and waits for
IN_FLIGHT_PROCESSES = 2_000
CACHED_PROCESSES = 1_000
CACHED_BYTES = 64 * 1024 * 1024
CLAIM_ROWS = 500
CLAIM_SHARE_ROWS = 50
POLL_SECONDS = 1.0
HOLD_SECONDS = 2.0
STEP_TIMEOUT_SECONDS = 3600.0
QUEUED_STEP_TIMEOUT_SECONDS = 60.0
TRANSACTION_TIMEOUT_SECONDS = 10.0
TRANSACTION_GRACE_SECONDS = 1.0
CHILD_HOLD_SECONDS = 2.0
REPLAY_EVENTS = 500
FOLDED_TURNS = 200
FOLDED_RECORDS = 1_000
MACHINE_HOLD_SECONDS = 4.0
LONG_HISTORY_EVENTS = 250
LONG_HISTORY_HOLD_SECONDS = 1.0
OUTBOX_RECORDS = 500
CHILD_DEPTH = 20_000
PUBLISHED_RECORDS = 1_000
VALUE_ROWS = 100
WAITING_CALLS = 10_000
STOP_SECONDS = 10.0
END_GRACE_SECONDS = 5.0  # that what stops gets on top of its time; then it is ended, or left behind
BLOCKED_LOOP_SECONDS = 2.0
EVIDENCE_SECONDS = 5.0
LAST_WORDS_SECONDS = 1.0
STEP_THREADS = 32
LOOP_THREADS = min(32, (os.cpu_count() or 1) + 4)  # for `asyncio.to_thread`: as many as asyncio has
LEFT_BEHIND_THREADS = 256
STEP_LEFT_BEHIND_THREADS = 64
STEP_CELLS = 8
CELL_CALLS = 1_000
CELL_START_SECONDS = 60.0
CELL_GRACE_SECONDS = 1.0
CELL_IDLE_SECONDS = 60.0
COLLECTOR_OBJECTS = 50_000

# Shortages of a worker: threads, descriptors, memory, child OS processes
SHORTAGE_AGAIN_SECONDS = 0.5
SHORTAGE_WAIT_SECONDS = 5.0
SHORTAGE_CALM_SECONDS = 15.0
SHORTAGE_ATTEMPT_SECONDS = 120.0
SHORTAGE_RESTART_SECONDS = 60.0
HUNG_STEP_RESTART_SECONDS = 600.0

# Batches
COMMAND_TRIES = 20
COMMAND_AGAIN_SECONDS = 0.005  # at most, before the second try; twice as long before each further one, up to a cap
COMMAND_AGAIN_CAP_SECONDS = 0.5
SEIZED_SECONDS = 2.0
OWNER_HEARS_SECONDS = 2.0
REMOVAL_SECONDS = 5.0  # a machine that removes itself stays so long, for those who look for its last answers
STEPS_TOLD_SECONDS = LEASE_SECONDS / 2  # a worker renews a lease, and reports open steps, when a third of it is gone
BATCH_RECORDS = 1_000
BATCH_BYTES = 8 * 1024 * 1024
KEPT_ARGUMENTS_BYTES = BATCH_BYTES  # of all steps that one turn asks for and that keep them
HEARD_BYTES = BATCH_BYTES  # unheard messages, of one process or of many, that are read at once
WAITING_RECORDS = 100_000
WAITING_BYTES = 256 * 1024 * 1024
START_WAIT_SECONDS = 0.01  # of many processes started at once, the next one waits so long for so many places
START_WAIT_PROCESSES = 25
START_WAIT_BUSY_SECONDS = 1.0  # as long as its worker is still writing what others asked for
BUSY_SECONDS = 5.0  # a live host takes what is due sooner, unless it is busy
NO_PROGRESS_SECONDS = 900.0  # of a process that a live worker holds, until it counts as one that makes no progress
SWEEP_ROWS = 500
SWEEP_PAGE_SECONDS = 0.1
PRUNED_EVENTS = 3_000
RETENTION_RULE_RECORDS = 100
RETENTION_SETTLED_SECONDS = 60.0  # after its end a process is not removed by a rule, whatever that says
RETENTION_AGAIN_SECONDS = 3600.0  # until what a rule had to leave is looked at again
RETENTION_LEASE_SECONDS = 60.0  # for which one worker works by the rules; two at once only archive a process twice
RETENTION_NOTED_SECONDS = 3600.0  # between two times that a worker with nothing to remove says that it has rules
SWEEP_LOG_SECONDS = 10.0  # between two looks of a worker at how sweeps pass
SWEEP_SILENT_SECONDS = 60.0  # without a pass, and two periods of the sweep more, until people are told
SWEEP_REMINDED_SECONDS = 3600.0
OUTAGE_LOOK_SECONDS = 1.0  # between two looks of a worker with rules at which kinds are held
OUTAGE_DOUBLED_SECONDS = 5.0  # after an outage twice as many processes are let go, each time
LIST_ROWS = 1_000
SAVED_SEARCH_RECORDS = 1_000
STATUS_RECORDS = 100  # runs whose changes of status are read, of one process
TRACE_EVENTS = 100_000  # that one trace is read from

# The retry budget of one step in one worker
RETRY_BUDGET_TRIES = 100
RETRY_BUDGET_SECONDS = 50.0
RETRY_LOOK_SECONDS = 1.0

# Circuit breakers: how old what a worker knows of them may be, how long a step waits at most before it asks again
BREAKER_LOOK_SECONDS = 1.0
BREAKER_WAIT_SECONDS = 60.0
BREAKER_LONGEST_SECONDS = 24 * 3600.0

# Rules that alert: how often workers look, how long one is at it, and how long a message is tried
ALERT_RULE_RECORDS = 200
ALERT_LOOK_SECONDS = 10.0  # until a worker looks which rules are due, at the latest
ALERT_PAUSE_SECONDS = 20.0  # for each second that a look has taken: five percent of one worker's time at most
ALERT_LONGEST_PAUSE_SECONDS = 600.0  # however long it takes: people are to hear of what is wrong
ALERT_SETTLED_SECONDS = 5.0  # what has changed since then may not be visible to all yet: it counts at the next look
ALERT_LEASE_SECONDS = 60.0
ALERT_LONGEST_LEASE_SECONDS = 3600.0
ALERT_DELIVERY_RECORDS = 16  # that a worker has under way at once
ALERT_DELIVERY_SECONDS = 40.0
ALERT_BEGIN_SECONDS = 15.0  # what cannot begin by then waits for the next look: with what it may take, the lease holds
ALERT_STOP_SECONDS = 5.0  # that deliveries under way get when a look is cancelled
ALERT_RETRY_SECONDS = 5.0
ALERT_RETRY_CAP_SECONDS = 900.0
ALERT_TRIED_SECONDS = 24 * 3600.0

# Leaders: how long a lease is and may be, and how long an engine that is closed waits for blocks to end
LEADER_LEASE_SECONDS = 15.0
LEADER_SHORTEST_SECONDS = 1.0
LEADER_LONGEST_SECONDS = 3600.0
LEADER_CLOSE_SECONDS = 1.0

# Event streams
STREAM_RECORDS = 500
STREAM_BYTES = 4 * 1024 * 1024
STREAM_TRIMMED_RECORDS = 3_000  # that one transaction removes from the log, of those that every stream has had
STREAM_LEASE_SECONDS = 15.0
STREAM_POLL_SECONDS = 1.0  # for what no notification tells of
STREAM_LOOK_SECONDS = 5.0  # until a worker looks which sinks nobody delivers to
STREAM_RETRY_SECONDS = 1.0
STREAM_RETRY_CAP_SECONDS = 60.0

# Checks: how many processes a second are examined in the background, and how long findings are kept
CHECKED_RECORDS = 50.0  # a second: a million in less than six hours
CHECK_HISTORY_EVENTS = 10_000_000  # of one process that are read at most, whatever a damaged row counts
CHECK_ROWS = 100  # that are examined between two looks at who goes on
CHECK_PAUSE_SECONDS = 50.0  # for each second that a page has taken: two percent of one worker's time at most
CHECK_LEASE_SECONDS = 60.0
CHECK_ROUND_SECONDS = 600.0  # from the beginning of one round to that of the next, at least
FINDING_RECORDS = 1_000
FINDING_SEEN_SECONDS = 3600.0  # so often is it written that a fault is still there
FINDING_KEPT_SECONDS = 30 * 24 * 3600.0  # after it has gone

# Poison
REVIVAL_LOOP_EVENTS = 20  # revivals in a row within this time, with nothing recorded in between: a loop
REVIVAL_LOOP_SECONDS = 3600.0
SUSPECT_DEATHS = 2
ALONE_DEATHS = 3
QUARANTINE_PROCESSES = 500
QUARANTINE_TRIAL_WORKERS = 2
QUARANTINE_WORKERS = 12
QUARANTINE_UP_SECONDS = 30.0
QUARANTINE_TRIAL_SECONDS = 3.0
QUARANTINE_SPACING_SECONDS = 1.5

# Retention
RETENTION_SECONDS = 30 * 24 * 3600.0
KEY_RETENTION_SECONDS = 90 * 24 * 3600.0

# Connections
CONNECT_SECONDS = 10.0
SILENT_CONNECTION_SECONDS = 10.0
SEARCH_SECONDS = 120.0
TRANSACTION_CONNECTIONS = 8
SQLITE_BUSY_SECONDS = 5.0
SQLITE_POLL_BUSY_SECONDS = 0.005
SQLITE_POLL_IDLE_SECONDS = 0.01
SQLITE_POLL_RUNG_SECONDS = 0.05
SQLITE_WAL_BYTES = 64 * 1024 * 1024
RECONNECT_FIRST_SECONDS = 0.05
RECONNECT_CAP_SECONDS = 2.0

# What a worker remembers of a database, to notice commits lost in a fail-over
LINEAGE_RECORDS = 40_000
LINEAGE_SECONDS = 3600.0
LINEAGE_GRACE_SECONDS = 5.0
LINEAGE_TOKENS = 1_000  # a hold's token is so far above the last that was answered: others may have claimed since

# Turns
TURN_CALLS = 1_000_000

# Undoing
UNDO_GRACE_SECONDS = 5.0
UNDO_ROWS = 50

# Monitoring
METRIC_SERIES_RECORDS = 500
STORED_FIGURES_SECONDS = 15.0
READY_SECONDS = 2.0
OPEN_SPAN_RECORDS = 20_000
