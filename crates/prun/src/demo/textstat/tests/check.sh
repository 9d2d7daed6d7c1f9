# check WHAT EXPECTED ACTUAL, any number of times, then finish.
failures=0

check() {
    [ "$2" = "$3" ] && return
    failures=$((failures + 1))
    printf '%s\n  expected: %s\n  actual:   %s\n' "$1" "$2" "$3"
}

finish() {
    [ "$failures" -eq 0 ]
}
