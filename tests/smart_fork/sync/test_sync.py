"""Sessions of one person on two machines, over a bare repository."""

from __future__ import annotations

from tests.smart_fork.sync.two_machines import machines

__all__ = ["machines"]

SAID = ("Why does the upload fail at 413?", "The proxy limits the body to 1 MB")


def test_a_session_of_one_machine_is_found_and_forked_on_the_other(machines):
    machines.laptop.world.claude(machines.laptop.repository, *SAID)
    machines.set_up()
    sent, received = machines.laptop.sync(), machines.desktop.sync()
    assert len(sent["sent"]) == 1
    assert [one["path"] is not None for one in received["received"]] == [True]
    (there,) = machines.desktop.ids()
    assert there == received["received"][0]["session_id"]
    found = machines.desktop.do("find", "upload fails 413", "--json").json
    assert there in str(found)
    said = machines.desktop.do("fork", there, "Raise the limit", "--dry-run", "--json")
    assert said.code == 0, said.err
    assert str(machines.laptop.repository) not in machines.desktop.logs()
    assert (machines.laptop.sync()["sent"], machines.desktop.sync()["received"]) == ([], [])
