. tests/check.sh
check "a line that fits" "alone" "$(./textstat wrap 5 tests/one.txt)"
check "a word that is too long" "alone" "$(./textstat wrap 3 tests/one.txt)"
check "lines are filled up to the width and no further" "The quick brown fox
jumps over the lazy
dog. The dog sleeps on,
and the fox is gone. So
it goes." "$(./textstat wrap 23 tests/fox.txt)"
finish
