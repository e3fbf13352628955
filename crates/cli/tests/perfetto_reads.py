"""Reads a trace with Perfetto's own definitions, and says what is in it as JSON."""

import collections
import json
import sys

from perfetto.protos.perfetto.trace import perfetto_trace_pb2

trace = perfetto_trace_pb2.Trace()
with open(sys.argv[1], "rb") as file:
    trace.ParseFromString(file.read())
counts = collections.Counter()
ends = collections.defaultdict(list)
tracks, parents, stacks, last = {}, {}, collections.defaultdict(list), 0
for packet in trace.packet:
    if packet.HasField("track_descriptor"):
        told = packet.track_descriptor
        assert told.uuid not in tracks, told
        assert not told.parent_uuid or told.parent_uuid in tracks, told
        tracks[told.uuid] = told.name
        counts["processes"] += told.HasField("process")
    if packet.HasField("track_event"):
        event = packet.track_event
        assert packet.timestamp >= last and event.track_uuid in tracks
        last = packet.timestamp
        if event.type == event.TYPE_SLICE_BEGIN:
            assert not stacks[event.track_uuid], f"{event.name} begins in {stacks[event.track_uuid]}"
            stacks[event.track_uuid].append(event.name)
            counts[event.categories[0]] += 1
            counts["in flight"] += event.name.endswith("(in flight)")
            for flow in event.flow_ids:
                ends[flow].append("begins")
            for flow in event.terminating_flow_ids:
                ends[flow].append("ends")
        elif event.type == event.TYPE_SLICE_END:
            stacks[event.track_uuid].pop()
assert not any(stacks.values()), stacks
for kinds in ends.values():
    assert len(kinds) <= 2 and len(set(kinds)) == len(kinds), kinds
    counts["arrows of two ends" if len(kinds) == 2 else "arrows of one end"] += 1
print(json.dumps(counts))
