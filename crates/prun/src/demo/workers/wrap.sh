# Repairs lib/wrap.sh.
. "$(dirname -- "$0")/common.sh"

step "run the tests of wrap as they are"
./run-tests wrap || true
step "the blank between two words is not counted, and the first word gets one too"
rewrite lib/wrap.sh <<'END'
# The words of FILE in lines of at most WIDTH characters. No word is broken.
awk -v width="$1" '
    function add(word) {
        if (line == "") {
            line = word
        } else if (length(line) + 1 + length(word) > width) {
            print line
            line = word
        } else {
            line = line " " word
        }
    }
    { for (i = 1; i <= NF; i++) add($i) }
    END { if (line != "") print line }
' "$2"
END
step "run them again"
./run-tests wrap
result "lines keep the width, and none starts with a blank" "lib/wrap.sh" "none" "./run-tests wrap" <<'END'
The blank before a word counts towards the width. The first word of all was joined to an empty line.
END
