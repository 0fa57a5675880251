"""Two source trees of Hansard, measured against each other: `python -m benchmarks.compare OLD NEW`.

Each tree runs in processes of its own, with the dependencies of this environment. A round runs every operation once in
both, in turn, and the ratio of their processor times is taken inside the round: a machine that others use as well slows
both, and waiting counts for neither. Beside it stand figures that no noise touches: the number of function calls,
of round trips to the server, and of commits, per call of the operation. They come from a second pair of processes,
because counting takes time.

    python -m benchmarks.compare ../before . --backend postgres --operation get_message append
"""
