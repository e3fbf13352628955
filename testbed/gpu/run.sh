#!/usr/bin/env bash
# Four PyTorch ranks on ONE GPU over the real NCCL, traced by libmycroft_nccl.so: shows the records, freezes one rank,
# shows the diagnosis. See README.md. Exit codes: 0 the frozen rank was named, 1 it was not, 2 could not be run.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin_dir=${MYCROFT_BIN_DIR:-$here/../../target/debug}
python=${PYTHON:-python3}
ranks=4
victim=${VICTIM:-2}
healthy_iterations=${HEALTHY_ITERATIONS:-30}
patience_s=${PATIENCE_S:-60}

fail() {
    echo "testbed/gpu: $1" >&2
    exit 2
}

mycroft=$bin_dir/mycroft
tracer=$bin_dir/libmycroft_nccl.so
[ -x "$mycroft" ] || fail "$mycroft not found: run 'cargo build --workspace', or set MYCROFT_BIN_DIR"
[ -f "$tracer" ] || fail "$tracer not found: run 'cargo build --workspace', or set MYCROFT_BIN_DIR"
command -v nvidia-smi >/dev/null || fail "nvidia-smi not found: this needs a machine with an NVIDIA GPU"
nvidia-smi -L | grep -q GPU || fail "nvidia-smi shows no GPU"
"$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null ||
    fail "$python has no PyTorch with CUDA: install it, or set PYTHON to one that has"
[ "$victim" -ge 0 ] && [ "$victim" -lt "$ranks" ] || fail "VICTIM=$victim: expected 0 to $((ranks - 1))"

free_port() {
    "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

work=$(mktemp -d "${TMPDIR:-/tmp}/mycroft-gpu.XXXXXX")
shm=$(mktemp -d /dev/shm/mycroft-gpu.XXXXXX)
pids=()
cleanup() {
    for pid in ${pids[@]+"${pids[@]}"}; do
        kill -KILL "$pid" 2>/dev/null || true
    done
    wait 2>/dev/null || true
    rm -rf "$work" "$shm"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

http=127.0.0.1:$(free_port)
export MYCROFT_URL=http://$http
"$mycroft" serve --http "$http" --wire "unix:$work/wire" >"$work/serve.log" 2>&1 &
pids+=($!)
for _ in $(seq 100); do
    [ -S "$work/wire" ] && break
    sleep 0.1
done
[ -S "$work/wire" ] || fail "the server did not come up: $(tail -n 1 "$work/serve.log")"
"$mycroft" agent --server "unix:$work/wire" --dir "$shm" >"$work/agent.log" 2>&1 &
pids+=($!)

# A host id of its own for each rank passes NCCL's duplicate-GPU check and makes every pair use the network transport,
# so that proxy and flow events are exercised. Socket over lo: no other hardware is needed.
master_port=$(free_port)
rank_pids=()
for ((rank = 0; rank < ranks; rank++)); do
    env RANK=$rank WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT="$master_port" \
        NCCL_HOSTID="rank$rank" NCCL_NET=Socket NCCL_IB_DISABLE=1 NCCL_SOCKET_IFNAME=lo \
        NCCL_ALGO=Ring NCCL_PROTO=Simple NCCL_MIN_NCHANNELS=2 NCCL_MAX_NCHANNELS=2 \
        NCCL_MNNVL_ENABLE=0 NCCL_NVLS_ENABLE=0 NCCL_CUMEM_ENABLE=0 NCCL_RAS_ENABLE=0 \
        NCCL_DEBUG=INFO NCCL_PROFILER_PLUGIN="$tracer" \
        MYCROFT_DIR="$shm" MYCROFT_JOB=gpu MYCROFT_RANK=$rank MYCROFT_WORLD_SIZE=$ranks \
        "$python" "$here/train.py" >"$work/rank$rank.log" 2>&1 &
    pids+=($!)
    rank_pids+=($!)
done

iterations_of() {
    grep -c '^iteration ' "$work/rank$1.log" || true
}

echo "waiting for $healthy_iterations iterations of $ranks ranks on one GPU"
for _ in $(seq 600); do
    [ "$(iterations_of 0)" -ge "$healthy_iterations" ] && break
    for ((rank = 0; rank < ranks; rank++)); do
        kill -0 "${rank_pids[$rank]}" 2>/dev/null ||
            fail "rank $rank ended: $(grep -v NCCL "$work/rank$rank.log" | tail -n 1)"
    done
    sleep 0.5
done
[ "$(iterations_of 0)" -ge "$healthy_iterations" ] || fail "only $(iterations_of 0) iterations in 300 s"

echo
echo "== versions"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
"$python" -c 'import torch; print("torch", torch.__version__, "NCCL", ".".join(map(str, torch.cuda.nccl.version())))'
grep -m 1 -i 'profiler' "$work/rank0.log" || echo "NCCL logged nothing about a profiler plugin"
echo
echo "== the tracer as the doctor sees it"
"$mycroft" doctor --pid "${rank_pids[0]}" --dir "$shm" || true
echo
echo "== records of the healthy job"
"$mycroft" watch --once --job gpu || true
echo "cases while healthy:"
"$mycroft" cases --job gpu || true
echo
echo "== SIGSTOP to rank $victim"
kill -STOP "${rank_pids[$victim]}"
frozen_at=$(date +%s)
named=1
while [ $(($(date +%s) - frozen_at)) -lt "$patience_s" ]; do
    "$mycroft" cases --job gpu --json >"$work/cases.json" 2>/dev/null || true
    if "$python" "$here/named.py" "$victim" <"$work/cases.json"; then
        named=0
        break
    fi
    sleep 0.5
done
echo "after $(($(date +%s) - frozen_at)) s:"
"$mycroft" cases --job gpu || true
for id in $("$python" "$here/named.py" --ids <"$work/cases.json"); do
    "$mycroft" cases "$id" || true
done
if [ "$named" -eq 0 ]; then
    echo "rank $victim was named"
else
    echo "rank $victim was NOT named within $patience_s s"
fi
exit "$named"
