//! One worker through `prun dispatch-task` and `prun __dispatch`, with shell scripts as workers.
