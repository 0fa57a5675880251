"""The same store without `await`, used by several threads at the same time.

It prints:

    [('shared', 30)]
    ['ben 7', 'ben 8', 'ben 9']
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import hansard.sync


def main() -> None:
    with hansard.sync.connect("sqlite:///blocking.db") as store:

        def write(name: str) -> None:
            for number in range(10):
                store.append_message("shared", "user", f"{name} {number}", participant={"kind": "user", "id": name})

        with ThreadPoolExecutor() as pool:
            list(pool.map(write, ["ann", "ben", "cleo"]))

        page = store.list_conversations()
        print([(conversation.id, conversation.message_count) for conversation in page.items])
        # Whoever wrote between them, each one's messages stand in the order in which they were written.
        print([message.text for message in store.get_messages("shared", last=3, participant_ids=["ben"])])


main()
