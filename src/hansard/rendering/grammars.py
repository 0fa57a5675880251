"""What highlighting knows about programming languages: their comments, strings and words.

Languages that look alike share a grammar, and so a list of keywords. Every pattern matches from where it begins, even
without its end, and never goes back: highlighting takes linear time for any text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

_DOUBLE = r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"?'
_SINGLE = r"'[^'\\\n]*+(?:\\.[^'\\\n]*+)*+'?"
_QUOTES = f"{_DOUBLE}|{_SINGLE}"
_LOOSE_QUOTES = f"{_DOUBLE}|(?<!\\w){_SINGLE}"
"""Strings next to prose, in which an apostrophe begins none."""
_TRIPLE = r'"""[\s\S]*?(?:"""|\Z)' + "|" + r"'''[\s\S]*?(?:'''|\Z)"
_BACKTICKS = r"`[^`\\]*+(?:\\[\s\S][^`\\]*+)*+`?"
_CHARACTER = r"'(?:[^'\\\n]|\\.[0-9A-Fa-f]{0,4}+)'"
_HASH, _SLASHES = r"#[^\n]*+", r"//[^\n]*+|/\*[\s\S]*?(?:\*/|\Z)"
_SHARP = r"(?<!\S)#[^\n]*+"
"""A comment of a shell, in which `#` is also a part of words."""
_DASHES, _SEMICOLON, _PERCENT = r"--[^\n]*+", r";[^\n]*+", r"%[^\n]*+"
_WORD = r"[@$]?[^\W\d]\w*+"
_CONSTANTS = "true false null nil none undefined nan inf True False None"

_PYTHON = """and as assert async await break case class continue def del elif else except finally for from global if
import in is lambda match nonlocal not or pass raise return try while with yield"""
_CURLY = """abstract as async await boolean break byte case catch char class const constexpr continue debugger def
default defer delete do double else enum export extends extern final finally float fn for foreach from func fun
function go goto if impl implements import in include inline instanceof int interface internal is let long loop match
message mod module mut namespace new object of operator override package private protected protocol pub public range
readonly record ref return sealed select short signed sizeof static string struct super switch synchronized template
this throw throws trait try type typedef typeof union unsafe unsigned use using val var virtual void volatile when
where while with yield self Self guard extension data companion lateinit suspend service rpc syntax echo elseif endif
endforeach"""
_SHELL = """case do done elif else end esac exit export fi for function if in local return set source then unset until
while begin switch param process foreach elseif throw try catch finally cd echo sudo"""
_SCRIPT = """alias and begin break case class def defmodule defp defstruct do else elseif elsif end ensure export
false for foreach fn function global if import in include let local module mutable my next not or our package quote
raise repeat require rescue return self struct sub super then undef unless until use using when where while yield"""
_CONFIG = """server location upstream listen root proxy_pass FROM RUN CMD COPY ADD ENV ARG EXPOSE WORKDIR ENTRYPOINT
USER VOLUME LABEL HEALTHCHECK resource variable output provider module data locals include ifdef ifndef ifeq else
endif define set if endforeach foreach function project yes no on off query mutation fragment type input enum
interface"""
_SQL = """add all alter analyze and any as asc begin between bigint boolean by cascade case check column commit
constraint create cross current date default delete desc distinct double drop else end except exists explain false
fetch float foreign from full function grant group having if ilike in index inner insert int integer intersect into is
join json jsonb key lateral left like limit natural not null numeric offset on only or order outer over partition
primary references returning revoke right rollback row rows select serial set table text then time timestamp to
transaction trigger true truncate union unique update using values varchar view when where window with"""
_FUNCTIONAL = """and as begin class case data deriving do done downto else end exception export external forall
foreign fun function functor if import in include infix infixl infixr instance let lazy match member module mutable
namespace newtype of open override qualified rec sig static struct then to try type val when where while with yield
receive after catch"""
_LISP = """and begin case cond def defconst defclass defcustom defmacro defmethod defn defn- defparameter defprotocol
defrecord defstruct deftype defun defvar do dolist dotimes else fn for if if-let lambda let let* letrec loop ns or
progn quote recur require set! setf setq unless use when when-let while"""
_MACHINE = """add and call cmp db dd dq dw equ extern global int inc dec jmp je jne jz jnz jg jl lea loop mov movzx
mul div not or pop push ret section shl shr sub syscall test xor"""
_MATHS = """break case do else elseif end for function global if implicit integer in next none program real repeat
return subroutine switch then until while allocate call contains dimension module parameter print use write"""


class Grammar(Struct, frozen=True):
    pattern: re.Pattern[str]
    """Finds comments (group 1), strings (2), numbers (3) and words (4)."""
    colours: Mapping[str, str]
    """The colours of words."""
    name_ends: str
    """The signs after a name."""


def _grammar(
    comments: str, strings: str, keywords: str, word: str = _WORD, name_ends: str = "(", flags: int = 0
) -> Grammar:
    words = dict.fromkeys(keywords.split(), "k")
    if flags & re.IGNORECASE:
        words |= {each.upper(): "k" for each in words}
    pattern = re.compile(f"({comments})|({strings})|(\\d[\\w.]*+)|({word})", flags)
    return Grammar(pattern, words | dict.fromkeys(_CONSTANTS.split(), "m"), name_ends)


_GRAMMARS = {
    "python py python3 pycon py3 pyi sage": _grammar(_HASH, f"{_TRIPLE}|{_QUOTES}", _PYTHON),
    """c h cpp c++ cc hpp csharp c# cs java dart groovy objective-c objc glsl hlsl protobuf proto swift kotlin kt scala
    php arduino solidity cuda""": _grammar(_SLASHES, f"{_TRIPLE}|{_QUOTES}", _CURLY),
    """javascript js mjs jsx typescript ts tsx go golang json json5 jsonc vue-script svelte-script""": _grammar(
        _SLASHES, f"{_QUOTES}|{_BACKTICKS}", _CURLY
    ),
    "rust rs zig": _grammar(_SLASHES, f"{_DOUBLE}|{_CHARACTER}", _CURLY),
    "css scss less sass": _grammar(_SLASHES, _QUOTES, "", r"[@#.$]?[\w-]++", ":"),
    "bash sh shell zsh ksh console shell-session fish powershell ps1 pwsh batch bat awk": _grammar(
        _SHARP, _LOOSE_QUOTES, _SHELL, r"\$\{?\w++\}?|[^\W\d][\w-]*+"
    ),
    "ruby rb perl pl elixir ex exs julia jl crystal nim coffeescript tcl": _grammar(
        _HASH, f"{_TRIPLE}|{_QUOTES}", _SCRIPT
    ),
    "yaml yml toml ini cfg properties dotenv env docker dockerfile make makefile cmake nginx terraform hcl graphql": (
        _grammar(_SHARP, f"{_TRIPLE}|{_LOOSE_QUOTES}", _CONFIG, r"\$\{?\w++\}?|[^\W\d][\w.-]*+", ":=")
    ),
    "sql mysql postgresql postgres psql sqlite sqlite3 plpgsql tsql cql": _grammar(
        f"{_DASHES}|{_SLASHES}", _QUOTES, _SQL, flags=re.IGNORECASE
    ),
    "lua": _grammar(r"--\[\[[\s\S]*?(?:\]\]|\Z)|" + _DASHES, _QUOTES, _SCRIPT),
    "haskell hs elm purescript": _grammar(
        f"{_DASHES}|\\{{-[\\s\\S]*?(?:-\\}}|\\Z)", f"{_DOUBLE}|{_CHARACTER}", _FUNCTIONAL
    ),
    "ocaml ml fsharp f# fs sml": _grammar(r"//[^\n]*+|\(\*[\s\S]*?(?:\*\)|\Z)", f"{_DOUBLE}|{_CHARACTER}", _FUNCTIONAL),
    "erlang erl": _grammar(_PERCENT, _QUOTES, _FUNCTIONAL),
    "clojure clj cljs scheme scm racket common-lisp lisp cl emacs-lisp elisp": _grammar(
        _SEMICOLON, _DOUBLE, _LISP, r"[^\W\d][\w!?*-]*+"
    ),
    "nasm asm s": _grammar(_SEMICOLON, _QUOTES, _MACHINE),
    "tex latex": _grammar(_PERCENT, r"(?!)", "", r"\\[a-zA-Z]++"),
    "r splus matlab octave": _grammar(f"{_HASH}|{_PERCENT}", _QUOTES, _MATHS),
    "fortran f90": _grammar(r"![^\n]*+", _QUOTES, _MATHS, flags=re.IGNORECASE),
    "vb.net vb vbnet": _grammar(r"'[^\n]*+", _DOUBLE, _CURLY, flags=re.IGNORECASE),
    "html xml svg vue svelte xhtml jinja": _grammar(
        r"<!--[\s\S]*?(?:-->|\Z)", _LOOSE_QUOTES, "", r"</?[\w:.-]++|[\w:.@-]++", "="
    ),
    "diff patch": _grammar(r"(?!)", r"^\+[^\n]*+", "", r"^[-@][^\n]*+", flags=re.MULTILINE),
    "http": _grammar(r"(?!)", r"(?!)", "GET POST PUT PATCH DELETE HEAD OPTIONS HTTP", r"[\w-]++", ":"),
}
BY_LANGUAGE = {name: grammar for names, grammar in _GRAMMARS.items() for name in names.split()}
