"""What an attacker sends: harmless pickles that leave a file where they are unpickled."""

import http.client
import pickle


class Marker:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def pickled(path) -> bytes:
    """A pickle that creates ``path`` when it is loaded."""
    return pickle.dumps(Marker(path))


def request(port, method, path, body=None, **headers) -> int:
    """Send a request to a server on this machine as anyone could.

    Returns:
        The status, or 0 where the server hung up.
    """
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=30)
    try:
        connection.request(method, path, body=body, headers=headers)
        return connection.getresponse().status
    except (ConnectionError, http.client.HTTPException):
        return 0
    finally:
        connection.close()
