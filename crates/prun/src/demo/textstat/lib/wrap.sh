# The words of FILE in lines of at most WIDTH characters. No word is broken.
awk -v width="$1" '
    function add(word) {
        if (length(line) + length(word) > width) {
            print line
            line = word
        } else {
            line = line " " word
        }
    }
    { for (i = 1; i <= NF; i++) add($i) }
    END { if (line != "") print line }
' "$2"
