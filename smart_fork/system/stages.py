"""Describes the progress of long work: its stage, the share done, and the remaining time."""

from __future__ import annotations

from indexer.lazy import dataclass

#: What the stages are called for people.
NAMES = {
    "reading": "reading logs",
    "embedding": "embedding passages",
    "loading": "loading the model",
    "copying": "copying logs",
    "recalling": "reading kept copies",
    "masking": "masking again",
    "erasing": "erasing",
}


@dataclass(slots=True)
class Stage:
    """A stage of long work that began at `began`, with `before` of it done, and has come to `done` of `total`."""

    name: str
    began: float
    before: int
    done: int
    total: int

    @property
    def title(self) -> str:
        """Title of the stage."""
        return NAMES.get(self.name, self.name)

    def share(self, now: float) -> str:
        """Describe the progress: "120 of 350 (34 %), about 12 s left"; for a single step, the elapsed time."""
        if self.total <= 1:
            return duration(now - self.began)
        return f"{self.done:,} of {self.total:,} ({100 * self.done // self.total} %){self._left(now)}"

    def ended(self, now: float) -> str:
        """Describe the completed work and its duration."""
        done = "" if self.total <= 1 else f"{self.done:,} of {self.total:,} in "
        return f"{done}{duration(now - self.began)}"

    def _left(self, now: float) -> str:
        """The time that is left where the rest goes as fast as what is done; nothing before anything is."""
        if self.before < self.done < self.total and now > self.began:
            return f", about {duration((self.total - self.done) * (now - self.began) / (self.done - self.before))} left"
        return ""


def duration(seconds: float) -> str:
    """Such as "1 min 20 s"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
