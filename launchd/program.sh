# Sourced by install.sh and uninstall.sh, which set `checkout`.
# shellcheck shell=sh

# Prints where smart-fork is: on PATH, where uv and pipx put it, or in the checkout; fails where it is nowhere.
find_program() {
    command -v smart-fork && return
    # shellcheck disable=SC2154
    for folder in "${UV_TOOL_BIN_DIR:-$HOME/.local/bin}" "${PIPX_BIN_DIR:-$HOME/.local/bin}" "$checkout/.venv/bin"; do
        if [ -x "$folder/smart-fork" ]; then
            printf '%s\n' "$folder/smart-fork"
            return
        fi
    done
    return 1
}
