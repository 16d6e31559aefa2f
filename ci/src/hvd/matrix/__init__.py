"""The support matrix: build and test the cells of ``ci/matrix.yaml``, keep and show the results.

`cells` reads the file and says what a cell is made from; `here` says what this machine lacks;
`attempt` builds and tests one cell, `ranks` runs Horovod's own tests and the examples in it;
`results` keeps the results in ``docs/matrix.jsonl``, and `page` shows them.
"""
