# What the demo's workers share. To prun they are programs like any other: a worker starts in its workspace,
# prints what it does, changes files there, and writes its result to $PRUN_RESULT.
set -eu

# One step: a line to see, and a little time to see it in.
step() {
    printf '%s\n' "$*"
    sleep "${DEMO_PAUSE:-1}"
}

# Writes stdin to FILE.
rewrite() {
    printf 'edit %s\n' "$1"
    cat >"$1"
}

# result CONCLUSION FILES OPEN-ITEMS VERIFICATION, with the body on stdin.
result() {
    {
        printf '# %s result\nConclusion: %s\nFiles: %s\nOpen items: %s\nVerification: %s\n\n' "$PRUN_UNIT" "$@"
        cat
    } >"$PRUN_RESULT"
}
