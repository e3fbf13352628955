/* The tracepoint that stands beside one record of the ring: the same 14 words; the time stamp is in LTTng's own header. */
#undef TRACEPOINT_PROVIDER
#define TRACEPOINT_PROVIDER mycroft_bench

#undef TRACEPOINT_INCLUDE
#define TRACEPOINT_INCLUDE "./record_tp.h"

#if !defined(RECORD_TP_H) || defined(TRACEPOINT_HEADER_MULTI_READ)
#define RECORD_TP_H

#include <lttng/tracepoint.h>
#include <stdint.h>

/* An array is copied at once: the cheapest way that LTTng has for 14 words. */
TRACEPOINT_EVENT(
    mycroft_bench, record, TP_ARGS(const uint64_t *, words), TP_FIELDS(ctf_array(uint64_t, words, words, 14)))

#endif

#include <lttng/tracepoint-event.h>
