"""A Ray cluster of two nodes on this machine, in a process of its own.

Prints its address; for each line that comes in, the second node is killed; ends with its input.
"""

import sys

from ray.cluster_utils import Cluster

HEAD = {"num_cpus": 1, "include_dashboard": False, "_system_config": {"worker_niceness": 0}}

if __name__ == "__main__":
    cluster = Cluster(initialize_head=True, head_node_args=HEAD)
    second = cluster.add_node(num_cpus=1)
    print(cluster.address, flush=True)
    for _ in sys.stdin:
        cluster.remove_node(second, allow_graceful=False)
        print("gone", flush=True)
    cluster.shutdown()
