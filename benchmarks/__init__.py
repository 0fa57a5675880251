"""Benchmarks of Hansard against the bare engine and its peers, measured in one program.

Every workload runs on several contenders in turn and reports ratios. On a shared machine, times change by a factor of
two or three from one minute to the next, but ratios within one round are stable.

`contenders/` has one file per store: ours, plain sqlite3 as the reference, and peers if they are installed.
`scenarios/` has one file per workload. Each verifies its data, in order, before it reports a time.

    python -m benchmarks                      every workload, table and JSON
    python -m benchmarks w1 w3 --quick        some of them, small sizes
    python -m benchmarks --table result.json  the table of a result, as Markdown
"""
