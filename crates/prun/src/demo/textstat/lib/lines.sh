# How many lines FILE has. The last one counts also where no newline ends it.
wc -l <"$1" | tr -d ' '
