"""An embedder that runs a model in ONNX on the CPU, offline, from a folder or a jar."""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile

import msgspec
from msgspec import Struct, structs

from hansard.errors import Corrupt, NotFound, Unsupported, ValidationError
from hansard.executor import run_in_thread
from hansard.search import catalogue
from hansard.search.catalogue import ModelSettings, Pooling

if TYPE_CHECKING:
    from hansard.search.vectors import TextKind

SETTINGS = "embedder.json"
MOST_TOKENS = 512
"""Tokens of a text that are embedded: as many as these models can read."""


class Files(Struct, frozen=True):
    """The files of a model."""

    model: bytes
    tokenizer: bytes
    settings: ModelSettings | None = None


class Onnx:
    """A model in ONNX: a folder or a jar (or zip) with `model.onnx` and `tokenizer.json`.

    Needs the extra `hansard[onnx]`. `hansard embedder install` provides models. For one that Hansard does not know,
    pass its pooling and prefixes, as its makers state them.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        pooling: Pooling | None = None,
        query_prefix: str | None = None,
        passage_prefix: str | None = None,
    ) -> None:
        if pooling not in (None, "cls", "mean"):
            raise ValidationError(f"pooling is {pooling!r}: 'cls' or 'mean'")
        where = Path(path).expanduser()
        files = read_files(where)
        given = {"name": name, "pooling": pooling, "query_prefix": query_prefix, "passage_prefix": passage_prefix}
        known = (
            files.settings or catalogue.settings_of(sha256(files.model).hexdigest()) or ModelSettings(name=where.stem)
        )
        self.settings = structs.replace(known, **{key: value for key, value in given.items() if value is not None})
        self.name = self.settings.name
        self.version = _version(files, self.settings)
        self._model = _Model(files, self.settings.pooling, str(where))
        self.dimensions = len(self._model.vector("a"))

    async def __call__(self, texts: Sequence[str], kind: TextKind) -> Sequence[Sequence[float]]:
        prefix = self.settings.query_prefix if kind == "query" else self.settings.passage_prefix
        # CPU-bound, so it runs in a thread.
        return await run_in_thread(lambda: [self._model.vector(prefix + text) for text in texts])


class _Model:
    def __init__(self, files: Files, pooling: Pooling, where: str) -> None:
        try:
            import onnxruntime
            from tokenizers import Tokenizer
        except ImportError as error:
            raise Unsupported(
                "this embedder needs packages that are not installed: pip install 'hansard[onnx]'", capability="onnx"
            ) from error
        options = onnxruntime.SessionOptions()
        # Half of the cores, without busy waiting: embedding runs behind the writes, and must not slow them down.
        options.intra_op_num_threads = max(1, (os.cpu_count() or 1) // 2)
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        try:
            self._session: Any = onnxruntime.InferenceSession(files.model, options, ["CPUExecutionProvider"])
            self._tokenizer = Tokenizer.from_str(files.tokenizer.decode())
        except Exception as error:  # both libraries raise classes of their own
            raise Corrupt(f"the model cannot be loaded: {error}", where=where) from error
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MOST_TOKENS)
        self._inputs = [each.name for each in self._session.get_inputs()]
        self._is_mean = pooling == "mean"
        outputs = [each.name for each in self._session.get_outputs()]
        self._output = "sentence_embedding" if "sentence_embedding" in outputs else outputs[0]

    def vector(self, text: str) -> list[float]:
        """Embeds one text: in a batch, a quantized model would make its vector depend on the other texts."""
        import numpy

        ids = self._tokenizer.encode(text.encode("utf-8", "replace").decode()).ids
        values = {"input_ids": ids, "attention_mask": [1] * len(ids), "token_type_ids": [0] * len(ids)}
        feed = {name: numpy.array([values[name]], dtype=numpy.int64) for name in self._inputs}
        (found,) = self._session.run([self._output], feed)
        if found.ndim == 3:
            found = found.mean(axis=1) if self._is_mean else found[:, 0]
        return [float(each) for each in found[0]]


def _version(files: Files, settings: ModelSettings) -> str:
    """Returns a digest of everything that a vector depends on."""
    digest = sha256(files.model)
    digest.update(files.tokenizer)
    digest.update(msgspec.json.encode((settings.pooling, settings.query_prefix, settings.passage_prefix)))
    return digest.hexdigest()[:16]


# Files


def read_files(where: Path) -> Files:
    """Returns the files in a folder, a jar or a zip."""
    try:
        if where.is_dir():
            return _chosen({path.name: path for path in sorted(where.iterdir())}, Path.read_bytes, str(where))
        with ZipFile(where) as archive:
            return _chosen({each.filename: each for each in archive.infolist()}, archive.read, str(where))
    except FileNotFoundError as error:
        raise NotFound(f"there is no folder or jar of a model at {str(where)!r}") from error
    except (BadZipFile, OSError, msgspec.DecodeError) as error:
        raise Corrupt(f"the model at {str(where)!r} cannot be read: {error}", where=str(where)) from error


def _chosen(names: dict[str, Any], read: Any, where: str) -> Files:
    settings = names.get(SETTINGS)
    return Files(
        read(names[_only(names, "model.onnx", ".onnx", where)]),
        read(names[_only(names, "tokenizer.json", "tokenizer.json", where)]),
        None if settings is None else msgspec.json.decode(read(settings), type=ModelSettings),
    )


def _only(names: dict[str, Any], name: str, ending: str, where: str) -> str:
    """Returns the file of that name, or else the only one whose name ends so."""
    found = [name] if name in names else [each for each in names if each.endswith(ending)]
    if len(found) != 1:
        what = f"{len(found)} files *{ending}" if found else f"no {name}"
        raise ValidationError(f"{where!r} has {what}: a model is a folder or a jar with model.onnx and tokenizer.json")
    return found[0]
