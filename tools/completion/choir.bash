# choir.bash - completion of the command choir for bash; installed as bash-completion/completions/choir.
#
# Commands and options come from the command itself (`choir help`), so there is no list here to forget.

# The words that start an indented line of a help text: commands, or options with their "--".
_choir_words()
{
    local command=$1 pattern=$2
    shift 2
    "$command" "$@" --help 2>/dev/null | sed -n "s/^  \($pattern\)\([ =].*\)\?$/\1/p"
}

# Where the command that `choir run` is to start begins among the words, if it is there already.
_choir_program()
{
    local i word takes=" $1 "
    for ((i = 2; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $word == -- ]]; then
            echo $((i + 1))
            return
        elif [[ $word != -* ]]; then
            echo "$i"
            return
        elif [[ $word == -n || $takes == *" $word "* ]]; then
            ((i++))
        fi
    done
}

_choir_run()
{
    local current=$2 previous=$3 program takes
    # Options that take a value: two spaces or more end the value's name in the help text.
    takes=$("$1" run --help 2>/dev/null | sed -n 's/^  \(--[a-z-]*\) [^ ].*/\1/p' | tr '\n' ' ')
    program=$(_choir_program "$takes")
    if [[ -n $program ]]; then
        if declare -F _command_offset >/dev/null; then
            _command_offset "$program"
        elif ((program == COMP_CWORD)); then
            mapfile -t COMPREPLY < <(compgen -c -- "$current")
        else
            mapfile -t COMPREPLY < <(compgen -f -- "$current")
        fi
        return
    fi
    case $previous in
    --bind) mapfile -t COMPREPLY < <(compgen -W "core none" -- "$current") ;;
    --color) mapfile -t COMPREPLY < <(compgen -W "auto always never" -- "$current") ;;
    --output) mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
    --token-file | --remote-choir) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    --hosts) mapfile -t COMPREPLY < <(compgen -A hostname -- "$current") ;;
    --rsh) mapfile -t COMPREPLY < <(compgen -c -- "$current") ;;
    -n) ;;
    *)
        [[ $takes == *"$previous "* && $previous == --* ]] && return
        if [[ $current == -* ]]; then
            mapfile -t COMPREPLY < <(compgen -W "$(_choir_words "$1" '--[a-z-]*' run)" -- "$current")
        else
            mapfile -t COMPREPLY < <(compgen -c -- "$current")
        fi
        ;;
    esac
}

# The words that a command's first operand can be: each at the beginning of a line, or all in lines "a, b, c".
_choir_operands()
{
    _choir_words "$1" '[a-z][a-z-]*' "$2"
    "$1" "$2" --help 2>/dev/null | sed -n 's/^  \([a-z_]*\(, [a-z_]*\)\{1,\}\)$/\1/p' | tr -d ','
}

_choir_other()
{
    local current=$2 previous=$3 command=${COMP_WORDS[1]} i operands=0 usage takes value
    usage=$("$1" "$command" --help 2>/dev/null | head -n 1)
    # Options with the names of their values: " -n=N --html=FILE".
    takes=" $("$1" "$command" --help 2>/dev/null | sed -n 's/^  \(--\{0,1\}[a-z-]*\) \([^ ]\{1,\}\).*/\1=\2/p' | tr '\n' ' ')"
    for ((i = 2; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} != -* ]]; then
            ((operands++))
        elif [[ ${COMP_WORDS[i + 1]} == = ]]; then
            ((i += 2))
        elif [[ $takes == *" ${COMP_WORDS[i]}="* ]]; then
            ((i++))
        fi
    done
    if [[ $previous == -* && $takes == *" $previous="* ]]; then
        value=${takes#*" $previous="}
        case ${value%% *} in
        FILE) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
        HOW) mapfile -t COMPREPLY < <(compgen -W "core none" -- "$current") ;;
        esac
    elif [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_choir_words "$1" '--\{0,1\}[a-z-]*' "$command")" -- "$current")
    elif ((operands == 0)) && [[ -n $(_choir_operands "$1" "$command") ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_choir_operands "$1" "$command")" -- "$current")
    elif [[ $usage == *FILE* || $usage == *URL* ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
}

_choir()
{
    local current=$2 commands
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        commands="$(_choir_words "$1" '[a-z]*') --help --version"
        mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$current")
    elif [[ ${COMP_WORDS[1]} == help ]]; then
        ((COMP_CWORD > 2)) || mapfile -t COMPREPLY < <(compgen -W "$(_choir_words "$1" '[a-z]*')" -- "$current")
    elif [[ ${COMP_WORDS[1]} == run ]]; then
        _choir_run "$@"
    else
        _choir_other "$@"
    fi
}

complete -o filenames -F _choir choir
