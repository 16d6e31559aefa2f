"""How a program is started on many ranks: what ``./hvd launch`` prints and runs."""
