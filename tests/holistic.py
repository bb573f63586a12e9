"""Reads the Kineto files of all ranks in a folder with Holistic Trace Analysis, and prints what it finds.

One JSON object a rank: microseconds of computation, of communication beside none, and the share of
communication beside computation. `tests/cli.rs` holds them against what shardlab says itself.
"""

import json
import os
import sys

# Times are exact to the nanosecond; without this they would be cut to microseconds.
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"

from hta.trace_analysis import TraceAnalysis  # noqa: E402


def main() -> None:
    analysis = TraceAnalysis(trace_dir=sys.argv[1])
    times = analysis.get_temporal_breakdown(visualize=False)
    overlap = analysis.get_comm_comp_overlap(visualize=False)
    ranks = times.merge(overlap, on="rank").sort_values(by="rank")
    for _, row in ranks.iterrows():
        found = {
            "rank": int(row["rank"]),
            "compute": float(row["compute_time(us)"]),
            "exposed": float(row["non_compute_time(us)"]),
            "idle": float(row["idle_time(us)"]),
            "kernels": float(row["kernel_time(us)"]),
            "overlap_percent": float(row["comp_comm_overlap_pctg"]),
        }
        print(json.dumps(found))


if __name__ == "__main__":
    main()
