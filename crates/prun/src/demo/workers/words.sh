# Repairs lib/words.sh.
. "$(dirname -- "$0")/common.sh"

step "read lib/words.sh"
cat lib/words.sh
step "two blanks in a row make an empty word; awk splits at runs of blanks"
rewrite lib/words.sh <<'END'
# How many words FILE has. Any number of blanks and line ends lies between two words.
awk '{ words += NF } END { print words + 0 }' "$1"
END
step "run the tests of words"
./run-tests words
result "runs of blanks separate words once" "lib/words.sh" "none" "./run-tests words" <<'END'
Each blank was made a line end and lines were counted, so that two blanks in a row counted as a word.
END
