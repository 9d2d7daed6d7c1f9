. tests/check.sh
check "one line" 1 "$(./textstat lines tests/one.txt)"
check "no line" 0 "$(./textstat lines /dev/null)"
check "a last line without a newline" 3 "$(./textstat lines tests/fox.txt)"
finish
