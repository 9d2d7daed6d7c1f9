# Repairs lib/lines.sh.
. "$(dirname -- "$0")/common.sh"

step "run the tests of lines as they are"
./run-tests lines || true
step "wc counts newlines, and the last line may have none; awk counts lines"
rewrite lib/lines.sh <<'END'
# How many lines FILE has. The last one counts also where no newline ends it.
awk 'END { print NR }' "$1"
END
step "run them again"
./run-tests lines
result "the last line counts also without a newline" "lib/lines.sh" "none" "./run-tests lines" <<'END'
`wc -l` counts newline characters. awk counts records, and the rest after the last newline is one.
END
