. tests/check.sh
check "one word" 1 "$(./textstat words tests/one.txt)"
check "no word" 0 "$(./textstat words /dev/null)"
check "two blanks in a row and a last line without a newline" 21 "$(./textstat words tests/fox.txt)"
finish
