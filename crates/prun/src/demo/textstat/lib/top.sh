# The COUNT most frequent words of FILE, one a line after its number. The case of letters makes no
# difference; of words that are equally frequent, the first in the alphabet comes first.
# TODO: words with an apostrophe.
tr -cs '[:alpha:]' '[\n*]' <"$2" |
    uniq -c |
    sort -k1,1nr -k2,2 |
    awk -v count="$1" 'NR <= count { print $1, $2 }'
