#!/bin/sh
# `prun` with the verb that this file is named after, under the name of the old script. The binary is
# $PRUN_BIN, else the one in PATH, else one beside this file; this process becomes it.
verb=${0##*/}
verb=${verb%.sh}
case $0 in
*/*) here=${0%/*} ;;
*) here=. ;;
esac

if [ -n "${PRUN_BIN:-}" ]; then
    prun=$PRUN_BIN
    command -v "$prun" >/dev/null 2>&1 || {
        echo "$verb: PRUN_BIN names no program: $prun" >&2
        exit 127
    }
elif command -v prun >/dev/null 2>&1; then
    prun=prun
elif [ -x "$here/prun" ]; then
    prun=$here/prun
else
    echo "$verb: cannot find prun: put it into PATH or beside $0, or set PRUN_BIN" >&2
    exit 127
fi
exec "$prun" "$verb" "$@"
