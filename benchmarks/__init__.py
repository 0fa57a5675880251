"""How fast Hansard is, beside what the engine allows and what its peers reach, measured in one program.

Every workload runs on several contenders in turn and reports ratios: a shared machine moves all of them by a factor of
two or three from one minute to the next, so microseconds mean little and a ratio taken inside one round means much.

`contenders/` holds one file per store: ours, plain sqlite3 as the reference, and peers where they are installed.
`scenarios/` holds one file per workload. Each asserts that what it wrote is there, in order, before it reports a time.

    python -m benchmarks                      every workload, table and JSON
    python -m benchmarks w1 w3 --quick        some of them, small sizes
    python -m benchmarks --table result.json  the table of a result, as Markdown
"""
