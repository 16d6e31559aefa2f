"""A plan as a file for each family of shells to source.

Each file keeps what a variable was in a variable of the shell's own, and ``hvd_deactivate`` puts
that back.
"""

from __future__ import annotations

import pathlib
import re
import shlex
from typing import Callable, Dict

from hvd.core.files import write_atomically
from hvd.deliver.activation.plan import Change, Plan

#: What no shell makes anything of.
_PLAIN = re.compile(r"[\w./:+,@-]+", re.ASCII)
_HERE = pathlib.Path(__file__).resolve().parent


def sh(plan: Plan) -> str:
    """For sh, dash, bash, ksh and zsh; also under ``set -eu``."""
    lines = [_head(plan, ".", "activate.sh") + (_HERE / "begin.sh").read_text()]
    if plan.modules:
        lines.append((_HERE / "modules.sh").read_text())
    lines += [f"_hvd_load {shlex.quote(name)}" for name in plan.modules]
    lines += [_sh_change(change) for change in plan.changes]
    lines.append("\nhvd_deactivate() {")
    lines += [f"    _hvd_restore {change.name}" for change in reversed(plan.changes)]
    lines += [f"    _hvd_unload {shlex.quote(name)}" for name in reversed(plan.modules)]
    functions = "hvd_deactivate _hvd_restore"
    if plan.modules:
        lines.append("    unset _hvd_loaded")
        functions += " _hvd_unload"
    lines.append(f"    unset -f {functions}\n}}")
    functions = "_hvd_keep _hvd_set _hvd_prepend _hvd_remove" + " _hvd_load" * bool(plan.modules)
    lines.append(f"unset -f {functions}\nunset _hvd_exported")
    return "\n".join(lines) + "\n"


def _sh_change(change: Change) -> str:
    if change.value is None:
        return f"_hvd_remove {change.name}"
    command = "_hvd_prepend" if change.prepend else "_hvd_set"
    return f"{command} {change.name} {shlex.quote(change.value)}"


def csh(plan: Plan) -> str:
    """For csh and tcsh."""
    lines = [_head(plan, "source", "activate.csh")]
    lines.append("if ($?_hvd_active) then\n    hvd_deactivate\nendif\nset _hvd_active")
    lines += [_csh_load(name, number) for number, name in enumerate(plan.modules)]
    lines += [_csh_change(change) for change in plan.changes]
    undo = [_csh_restore(change.name) for change in reversed(plan.changes)]
    undo += [
        _csh_if(f"_hvd_module_{number}", f"module unload {_csh_quote(name)}")
        for number, name in reversed(list(enumerate(plan.modules)))
    ]
    undo += ["unset _hvd_active", "unalias hvd_deactivate", "rehash"]
    lines.append(f"alias hvd_deactivate {_csh_quote('; '.join(undo))}\nrehash")
    return "\n".join(lines) + "\n"


def _csh_quote(text: str) -> str:
    """``text`` as one word; a ``!`` and a newline need a backslash even between quotes."""
    if _PLAIN.fullmatch(text):
        return text
    text = text.replace("'", "'\"'\"'").replace("!", "\\!").replace("\n", "\\\n")
    return f"'{text}'"


def _csh_change(change: Change) -> str:
    name = change.name
    # not on one line: csh would put in $NAME before it looks at the condition
    keep = f"if ($?{name}) then\n    set _hvd_was_{name} = ${name}:q\nendif"
    if change.value is None:
        return f"{keep}\nunsetenv {name}"
    value = _csh_quote(change.value)
    if not change.prepend:
        return f"{keep}\nsetenv {name} {value}"
    front = _csh_quote(change.value.rstrip(":") + ":")
    return f"""{keep}
if (! $?{name}) then
    setenv {name} {value}
else if ("${name}" == "") then
    setenv {name} {value}
else
    setenv {name} {front}${name}:q
endif"""


def _csh_restore(name: str) -> str:
    return f"unsetenv {name}; " + _csh_if(f"_hvd_was_{name}", f"setenv {name} $_hvd_was_{name}:q")


def _csh_if(variable: str, command: str) -> str:
    """``command`` where ``variable`` is set, which then goes.

    eval: csh puts in variables and aliases before it looks at a condition.
    """
    return f"if ($?{variable}) eval {_csh_quote(f'{command}; unset {variable}')}"


def _csh_load(name: str, number: int) -> str:
    quoted = _csh_quote(name)
    return f"""set _hvd_loaded = ':'
if ($?LOADEDMODULES) then
    set _hvd_loaded = ":${{LOADEDMODULES}}:"
endif
if ("$_hvd_loaded" !~ *:{name}:* && "$_hvd_loaded" !~ *:{name}/*) then
    if ("`alias module`" == "") then
        echo "activate.csh: there is no command 'module' to load "{quoted}" with"
    else
        module load {quoted}
        set _hvd_module_{number}
    endif
endif
unset _hvd_loaded"""


def fish(plan: Plan) -> str:
    """For fish."""
    lines = [_head(plan, "source", "activate.fish")]
    lines.append("functions -q hvd_deactivate; and hvd_deactivate")
    lines += [_fish_load(name, number) for number, name in enumerate(plan.modules)]
    lines += [_fish_change(change) for change in plan.changes]
    lines.append("\nfunction hvd_deactivate")
    lines += [_fish_restore(change.name) for change in reversed(plan.changes)]
    for number, name in reversed(list(enumerate(plan.modules))):
        flag = f"_hvd_module_{number}"
        lines.append(f"    set -q {flag}; and module unload {_fish_quote(name)}")
        lines.append(f"    set -e {flag}")
    lines.append("    functions -e hvd_deactivate\nend")
    return "\n".join(lines) + "\n"


def _fish_quote(text: str) -> str:
    text = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


def _fish_change(change: Change) -> str:
    name = change.name
    keep = f"""\
if set -q {name}
    set -g _hvd_was_{name} ${name}
    set -g _hvd_scope_{name} (set -qx {name}; and printf %s -gx; or printf %s -gu)
end"""
    if change.value is None:
        return f"{keep}\nset -e {name}"
    value = _fish_quote(change.value)
    if not change.prepend:
        return f"{keep}\nset -gx {name} {value}"
    front = _fish_quote(change.value.rstrip(":"))
    return f"""{keep}
if test -n "${name}"
    set -gx {name} (string join : -- {front} ${name})
else
    set -gx {name} {value}
end"""


def _fish_restore(name: str) -> str:
    was, scope = f"_hvd_was_{name}", f"_hvd_scope_{name}"
    return f"""    set -e {name}
    set -q {was}; and set ${scope} {name} ${was}
    set -e {was} {scope}"""


def _fish_load(name: str, number: int) -> str:
    quoted = _fish_quote(name)
    return f"""\
if not string match -q -- '*:'{quoted}':*' ":$LOADEDMODULES:"
    and not string match -q -- '*:'{quoted}'/*' ":$LOADEDMODULES:"
    if type -q module
        module load {quoted}; and set -g _hvd_module_{number}
    else
        echo "activate.fish: there is no command 'module' to load "{quoted}" with" >&2
    end
end"""


def _head(plan: Plan, source: str, file: str) -> str:
    return (
        f"# Made by ./hvd activate: {plan.comment}.\n"
        f"# Use it: {source} {file}; hvd_deactivate gives the environment back.\n"
    )


#: File to what writes it.
FILES: Dict[str, Callable[[Plan], str]] = {
    "activate.sh": sh,
    "activate.csh": csh,
    "activate.fish": fish,
}


def write(plan: Plan, directory: pathlib.Path) -> None:
    """Write the file of every shell into ``directory``.

    Raises:
        HvdError: one cannot be written.
    """
    texts = {file: render(plan) for file, render in FILES.items()}
    for file, text in texts.items():
        write_atomically(directory / file, text.encode())
