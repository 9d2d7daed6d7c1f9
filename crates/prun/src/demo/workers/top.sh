# Repairs lib/top.sh, in its second attempt. The first sees one fault of two, runs no test, and says that it is
# done. The unit's own check finds out, and prun gives it another attempt.
. "$(dirname -- "$0")/common.sh"

# before_uniq STAGES: adds them to the pipeline.
before_uniq() {
    awk -v stages="$1" '/uniq -c/ { print stages } { print }' lib/top.sh >top.new
    rewrite lib/top.sh <top.new
    rm top.new
}

step "read lib/top.sh"
cat lib/top.sh
step "uniq counts neighbours only: the words must be sorted before"
if [ "${PRUN_ATTEMPT:-1}" -eq 1 ]; then
    before_uniq "    sort |"
    result "words are sorted before they are counted" "lib/top.sh" "none" "none" <<'END'
That was all, as it seems.
END
    exit 0
fi
step "and their case must be folded before that"
before_uniq "    tr '[:upper:]' '[:lower:]' |\\n    sort |"
step "run the tests of top"
./run-tests top
result "words are folded and sorted before they are counted" "lib/top.sh" "none" "./run-tests top" <<'END'
Two faults: `uniq -c` counts neighbours and the words were not sorted; "The" and "the" were two words.
END
