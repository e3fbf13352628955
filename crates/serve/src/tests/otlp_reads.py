"""Reads a POST of OTLP with OpenTelemetry's own definitions, and says what is in it as JSON."""

import json
import sys

from google.protobuf.json_format import MessageToDict
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

REQUESTS = {
    "/v1/logs": ExportLogsServiceRequest,
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
}


def all_known(message):
    """Fails where a field is none of its message."""
    assert not len(UnknownFieldSet(message)), message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in [value] if hasattr(value, "ListFields") else value:
                all_known(inner)


with open(sys.argv[2], "rb") as file:
    body = file.read()
request = REQUESTS[sys.argv[1]]()
request.ParseFromString(body)
all_known(request)
assert request.SerializeToString(deterministic=True) == body, "written again it is something else"
json.dump(MessageToDict(request), sys.stdout)
