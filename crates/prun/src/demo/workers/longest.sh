# Repairs lib/longest.sh.
. "$(dirname -- "$0")/common.sh"

step "run the tests of longest as they are"
./run-tests longest || true
step "the length of the longest line so far is compared with, and never kept"
sed 's/{ line = \$0 }/{ longest = length($0); line = $0 }/' lib/longest.sh >longest.new
rewrite lib/longest.sh <longest.new
rm longest.new
step "run them again"
./run-tests longest
result "the longest line is remembered with its length" "lib/longest.sh" "none" "./run-tests longest" <<'END'
`longest` stayed empty, so every line that is not empty was longer, and the last one won.
END
