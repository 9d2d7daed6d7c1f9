# The longest line of FILE; of several, the first.
awk 'length($0) > longest { line = $0 } END { print line }' "$1"
