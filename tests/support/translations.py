"""Sentences and their translations for the tests of the translator: a few hundred, the same everywhere."""

from __future__ import annotations

TINY = ["--width", "16", "--depth", "1", "--heads", "2"]  # a network for them
TEXT = "não foi possível abrir o arquivo: permissão negada"

THINGS = {
    "arquivo": "file",
    "diretório": "directory",
    "usuário": "user",
    "processo": "process",
    "pacote": "package",
    "módulo": "module",
    "índice": "index",
    "servidor": "server",
    "endereço": "address",
    "código": "code",
}
SENTENCES = {
    "não foi possível abrir o {} número {}: permissão negada": "cannot open {} number {}: permission denied",
    "o {} “{}” não existe mais neste sistema": "the {} '{}' no longer exists on this system",
    "falha ao ler {} {}": "failed to read {} {}",
    "{} desconhecido, código {}; tente novamente depois": "unknown {}, code {}; try again later",
    "removendo {} antigo de {}": "removing old {} from {}",
}
ADDED = ["ontem", "hoje", "agora", "sempre", "aqui", "ali", "cedo", "tarde"]


def invented() -> list[tuple[str, str]]:
    """Pairs enough for a tiny network, the same on every machine."""
    found: list[tuple[str, str]] = []
    for portuguese, english in SENTENCES.items():
        for one, word in THINGS.items():
            for other, again in THINGS.items():
                place = len(found)
                day = ADDED[place % len(ADDED)]
                found.append(
                    (f"{portuguese} {day}".format(one, other), f"{english} {day}".format(word, again))
                )
    return found
