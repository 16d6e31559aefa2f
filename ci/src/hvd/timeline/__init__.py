"""Where the time of a distributed job goes, from the trace that Horovod writes.

`trace` reads HOROVOD_TIMELINE's file; `totals` sums it up; `tables` and `picture` show it.  The
coordinator, rank 0, writes the trace: what is in it is how the job looked from there.
"""
