#!/bin/sh
# Epilog of slurm.conf, as root on each node after a job: where no agent does it, removes what the tracer of this user left in
# memory. Nothing while a process of the user is alive. It starts nothing, and ends with 0 whatever it finds.
user="${SLURM_JOB_UID:-}"
directory="/dev/shm/mycroft-$user"

case "$user" in
    "" | *[!0-9]*) exit 0 ;;
esac
# A link, or another user's: not ours to follow.
[ -d "$directory" ] && [ ! -L "$directory" ] && [ "$(stat -c %u "$directory")" = "$user" ] || exit 0
command -v pgrep >/dev/null || exit 0
if pgrep -U "$user" >/dev/null 2>&1; then
    exit 0
fi
# Locked: an agent runs, and removes what is over once it has read it.
if [ -e "$directory/agent.lock" ] && ! flock --nonblock "$directory/agent.lock" true 2>/dev/null; then
    exit 0
fi
find "$directory" -maxdepth 1 -type f -user "$user" -delete
exit 0
