"""Formulas in TeX as MathML, which browsers draw without scripts or fonts of ours.

Covers what models write most: letters, numbers, operators, Greek letters, sub- and superscripts, fractions, roots and
text. A formula with anything else is shown as it was written, in one piece.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

TAGS = frozenset(
    {"math", "mi", "mn", "mo", "mrow", "mtext", "mfrac", "msqrt", "mroot", "msub", "msup", "msubsup", "mspace"}
)
_MOST = 2_000
"""Characters; longer formulas are shown as they were written."""
_DEEPEST = 40
"""Groups and commands inside of each other, such as the fractions of a fraction, which have two levels each."""
_TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|[0-9]+(?:[.,][0-9]+)*|\s+|.", re.DOTALL)


def _table(text: str) -> dict[str, str]:
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=True))


_GREEK = _table(
    """alpha α beta β gamma γ delta δ epsilon ϵ zeta ζ eta η theta θ iota ι kappa κ lambda λ mu μ nu ν xi ξ pi π rho ρ
    sigma σ tau τ upsilon υ phi ϕ chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Phi Φ Psi Ψ
    Omega Ω varepsilon ε varphi φ infty ∞ partial ∂ nabla ∇ ell ℓ hbar ℏ ldots … dots … cdots ⋯ emptyset ∅
    sin sin cos cos tan tan log log ln ln exp exp lim lim max max min min sup sup inf inf det det gcd gcd Pr Pr"""
)
_SIGNS = _table(
    """cdot ⋅ times × div ÷ pm ± mp ∓ le ≤ leq ≤ ge ≥ geq ≥ ne ≠ neq ≠ approx ≈ sim ∼ equiv ≡ propto ∝ ll ≪ gg ≫ to →
    rightarrow → leftarrow ← Rightarrow ⇒ Leftrightarrow ⇔ mapsto ↦ in ∈ subset ⊂ subseteq ⊆ cup ∪ cap ∩
    forall ∀ exists ∃ sum ∑ prod ∏ int ∫ lor ∨ land ∧ neg ¬ mid ∣ circ ∘ langle ⟨ rangle ⟩ lfloor ⌊ rfloor ⌋ lceil ⌈
    rceil ⌉ { { } } % % $ $ _ _ # # & & | ‖"""
)
_SPACES = frozenset({"\\,", "\\;", "\\:", "\\!", "\\ ", "\\quad", "\\qquad"})
_FENCES = frozenset({"\\left", "\\right", "\\big", "\\Big", "\\bigl", "\\bigr", "\\displaystyle", "\\limits"})
_TEXTS = frozenset({"\\text", "\\mathrm", "\\operatorname", "\\mathbf", "\\mathit", "\\textbf"})


class _Unknown(Exception):
    """The formula has something that is not covered here."""


def render(tex: str, *, is_block: bool) -> str:
    """Returns a formula as MathML; as its source, in a `code` element, where it cannot be converted."""
    display = "block" if is_block else "inline"
    try:
        if len(tex) > _MOST:
            raise _Unknown
        return f'<math class="formula" display="{display}">{_Reader(tex).whole()}</math>'
    except _Unknown:
        sign = "$$" if is_block else "$"
        return f'<code class="formula">{escape(f"{sign}{tex}{sign}")}</code>'


class _Reader:
    """Reads a formula, token by token."""

    def __init__(self, tex: str) -> None:
        self._tokens: list[str] = _TOKEN.findall(tex)
        self._at = 0
        self._depth = 0

    def whole(self) -> str:
        made = self._row(None)
        if self._at < len(self._tokens):
            raise _Unknown
        return made

    def _next(self) -> str:
        while self._at < len(self._tokens):
            self._at += 1
            token: str = self._tokens[self._at - 1]
            if not token.isspace():
                return token
        raise _Unknown

    def _peek(self) -> str | None:
        places = range(self._at, len(self._tokens))
        return next((self._tokens[place] for place in places if not self._tokens[place].isspace()), None)

    def _row(self, end: str | None) -> str:
        pieces: list[str] = []
        while (token := self._peek()) != end:
            if token is None or token == "}":
                raise _Unknown
            pieces.append(self._with_scripts())
        return f"<mrow>{''.join(pieces)}</mrow>"

    def _with_scripts(self) -> str:
        base = self._atom()
        scripts: dict[str, str] = {}
        while (sign := self._peek()) in ("_", "^") and sign not in scripts:
            self._next()
            scripts[str(sign)] = self._atom()
        if len(scripts) == 2:
            return f"<msubsup>{base}{scripts['_']}{scripts['^']}</msubsup>"
        for sign, script in scripts.items():
            tag = "msub" if sign == "_" else "msup"
            return f"<{tag}>{base}{script}</{tag}>"
        return base

    def _atom(self) -> str:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _Unknown
        made = self._group_or_sign(self._next())
        self._depth -= 1
        return made

    def _group_or_sign(self, token: str) -> str:
        if token == "{":
            made = self._row("}")
            self._next()
            return made
        if token.startswith("\\"):
            return self._command(token)
        if token in "_^}&~#%$":
            raise _Unknown
        if token[0].isdigit():
            return f"<mn>{escape(token)}</mn>"
        return f"<mi>{escape(token)}</mi>" if token.isalpha() else f"<mo>{escape(token)}</mo>"

    def _command(self, token: str) -> str:
        name = token[1:]
        if token in _SPACES or token in _FENCES:
            return "<mspace></mspace>"
        if token in ("\\frac", "\\dfrac", "\\tfrac"):
            return f"<mfrac>{self._atom()}{self._atom()}</mfrac>"
        if token == "\\sqrt":
            return self._root()
        if token in _TEXTS:
            return f"<mtext>{escape(''.join(self._braced()))}</mtext>"
        if name in _GREEK:
            return f"<mi>{_GREEK[name]}</mi>"
        if name in _SIGNS:
            return f"<mo>{escape(_SIGNS[name])}</mo>"
        raise _Unknown

    def _root(self) -> str:
        """Reads what a root is of, and which root it is: `\\sqrt[3]{x}`."""
        if self._peek() != "[":
            return f"<msqrt>{self._atom()}</msqrt>"
        self._next()
        degree = self._row("]")
        self._next()
        return f"<mroot>{self._atom()}{degree}</mroot>"

    def _braced(self) -> Iterator[str]:
        """Yields the text in braces as it was written, with its spaces."""
        if self._next() != "{":
            raise _Unknown
        while self._at < len(self._tokens):
            self._at += 1
            token = self._tokens[self._at - 1]
            if token == "}":
                return
            if token.startswith("\\") or token == "{":
                raise _Unknown
            yield token
        raise _Unknown
