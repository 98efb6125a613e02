"""Tests of the language of a text by its commonest words."""

from __future__ import annotations

from smart_fork.finding.results import language_of, most_are_in
from tests.support.cases import parametrize_subtests


@parametrize_subtests(
    ("text", "language"),
    [
        ("retry the upload", "English"),
        ("why does the uploader give up after one failure", "English"),
        ("warum gibt der Uploader nach einem Fehler auf, und wie wird das getestet", "German"),
        ("Bitte Wiederholung einbauen", ""),
        ("pourquoi est-ce que le serveur ne répond pas", "French"),
        ("por qué el servidor no responde y cómo se arregla", "Spanish"),
        ("por que o servidor não responde e como se corrige isso para a equipe", "Portuguese"),
        ("perché il server non risponde e come si corregge", "Italian"),
        ("waarom antwoordt de server niet en hoe los ik het op", "Dutch"),
        ("uploader retry backoff S3Client.put_object", ""),
        ("update the de and fr translations", "English"),
        ("", ""),
    ],
)
def test_common_words_tell_it(text, language):
    assert language == language_of(text)


def test_of_several_texts_more_than_half_have_to_be_in_it():
    german = "warum gibt der Uploader auf, und wie wird das getestet"

    assert "German" == most_are_in([german, german, "retry the upload"])
    assert "" == most_are_in([german, "retry the upload"])
    assert "" == most_are_in([])
