# The report needs every module.
. tests/check.sh
check "the whole report" "The quick brown fox jumps over
the lazy dog. The dog sleeps
on, and the fox is gone. So it
goes.
--
3 lines, 21 words
longest: The quick brown fox  jumps over the lazy dog.
most frequent: 4 the" "$(./textstat report tests/fox.txt)"
finish
