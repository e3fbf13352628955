#!/bin/sh
# Prolog of slurm.conf, as root on each node before a job: says in the node's log when the job will not be traced, and why.
# It starts nothing and never drains a node: it ends with 0 whatever it finds.
plugin="${MYCROFT_PLUGIN:-/usr/lib/mycroft/libmycroft_nccl.so}"
directory="/dev/shm/mycroft-${SLURM_JOB_UID:-0}"

say() {
    logger -t mycroft -p user.warning "job ${SLURM_JOB_ID:-?}: $*" 2>/dev/null || true
}

[ -r "$plugin" ] || say "no $plugin on this node: not traced"
# The agent of this user holds a lock there for as long as it runs. Without it the tracer writes, and nobody reads.
if ! [ -e "$directory/agent.lock" ] || flock --nonblock "$directory/agent.lock" true 2>/dev/null; then
    say "no agent reads $directory: systemctl enable --now mycroft-agent@${SLURM_JOB_UID:-0}.service"
fi
exit 0
