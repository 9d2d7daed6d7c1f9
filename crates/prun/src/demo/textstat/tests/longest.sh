. tests/check.sh
check "the only line" "alone" "$(./textstat longest tests/one.txt)"
check "the first of three" "The quick brown fox  jumps over the lazy dog." "$(./textstat longest tests/fox.txt)"
finish
