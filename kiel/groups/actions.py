"""What a member of a group has to do, in this order: lists of these are what ``Membership.handle`` gives.

Whatever has an ``attempt`` is to be answered, when it is done, by an event with that number (each says which).
"""
import collections

# Requests; the answer may also be Failed.
FindCoordinator = collections.namedtuple("FindCoordinator", "attempt")  # CoordinatorFound
SendJoin = collections.namedtuple("SendJoin", "attempt generation member_id owned")  # Joined; `owned` is for metadata
SendSync = collections.namedtuple("SendSync", "attempt generation member_id assignments")  # Synced; a follower's are {}
SendHeartbeat = collections.namedtuple("SendHeartbeat", "attempt generation member_id")  # HeartbeatAnswered
SendLeave = collections.namedtuple("SendLeave", "attempt member_id")  # Left
# The join or sync of that number isn't waited for any more. The broker may go on holding it, and with it all that comes
# after it on its connection: what follows needs a new one.
Cancel = collections.namedtuple("Cancel", "attempt")

# Work in this process.
Assign = collections.namedtuple("Assign", "attempt protocol members")  # Assigned, or Failed
# Stop consuming, commit what is acknowledged, call the application: then Revoked. With `lost` they may be another's
# already: nothing may be committed, no answer is needed, and a Revoke of the same ones that is under way is overtaken.
Revoke = collections.namedtuple("Revoke", "attempt partitions lost")
Adopt = collections.namedtuple("Adopt", "added kept")  # consume these; both are sets of (topic, partition)

# Words.
Tell = collections.namedtuple("Tell", "error")  # to be raised by the application's call: this one, or the next
Warn = collections.namedtuple("Warn", "text")  # to be logged
