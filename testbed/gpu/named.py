"""Reads the JSON of `mycroft cases --json` from standard input.

named.py RANK    exits 0 when an open case names RANK, and no other rank, as its most likely suspect
named.py --ids   prints the ids of all cases
"""

import json
import sys


def cases(value):
    """The list of cases, whether bare or inside an object."""
    if isinstance(value, dict):
        value = value.get("cases", [value])
    return [case for case in value if isinstance(case, dict)]


def top_ranks(case):
    """Ranks that share the greatest confidence in a case."""
    suspects = case.get("suspects") or case.get("finding", {}).get("suspects", [])
    best = max((suspect.get("confidence", 0.0) for suspect in suspects), default=0.0)
    return {suspect.get("rank") for suspect in suspects if suspect.get("confidence", 0.0) == best}


def main():
    try:
        found = cases(json.load(sys.stdin))
    except ValueError:
        found = []
    if sys.argv[1:] == ["--ids"]:
        print(*[case["id"] for case in found if "id" in case], sep="\n")
        return 0
    rank = int(sys.argv[1])
    return 0 if any(top_ranks(case) == {rank} for case in found) else 1


if __name__ == "__main__":
    sys.exit(main())
