"""Where the time of a distributed job goes, from the trace that Horovod writes.

`trace` reads the file of HOROVOD_TIMELINE, `totals` adds it up, `tables` and `picture` show it,
`archive` converts it.
The coordinator, rank 0, writes the trace: it shows the job as seen from there.
"""
