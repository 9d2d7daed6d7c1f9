# How many words FILE has. Any number of blanks and line ends lies between two words.
tr ' ' '\n' <"$1" | wc -l | tr -d ' '
