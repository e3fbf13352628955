#!/bin/sh
# TaskProlog of slurm.conf: what it prints as `export NAME=value` is in the environment of each task. It starts nothing.
# A plugin that the job names itself goes on behind ours (MYCROFT_CHAIN_PLUGIN). MYCROFT_OFF=1 in the job leaves all as it is.
plugin="${MYCROFT_PLUGIN:-/usr/lib/mycroft/libmycroft_nccl.so}"

if [ "${MYCROFT_OFF:-0}" != 0 ] || [ ! -r "$plugin" ] || [ "${NCCL_PROFILER_PLUGIN:-}" = "$plugin" ]; then
    exit 0
fi
case "${NCCL_PROFILER_PLUGIN:-}" in
    # Not set, or a path: then it can be chained.
    "") ;;
    /*) echo "export MYCROFT_CHAIN_PLUGIN=$NCCL_PROFILER_PLUGIN" ;;
    # A name that NCCL looks for, or "none": the job's own choice.
    *) exit 0 ;;
esac
echo "export NCCL_PROFILER_PLUGIN=$plugin"
