. tests/check.sh
check "the only word" "1 alone" "$(./textstat top 5 tests/one.txt)"
check "upper and lower case are the same" "4 the" "$(./textstat top 1 tests/fox.txt)"
check "equally frequent words are in order" "4 the
2 dog
2 fox" "$(./textstat top 3 tests/fox.txt)"
finish
